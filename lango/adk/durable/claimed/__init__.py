"""ADK's services of a claimed turn: each write checks the claim."""
