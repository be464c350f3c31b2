"""The model's context: token estimates, budgets and calibration."""
