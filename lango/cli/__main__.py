"""`python -m lango.cli`, for where no script was installed."""

from lango.cli import main

main()
