"""BLACKBOX: servers and workers as users run them, judged from outside."""
