"""An agent one can talk to."""
