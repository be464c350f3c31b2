"""What a rate of turns needs: a model and a simulation."""
