"""`python -m ddtop`."""

from ddtop.cli import main

main()
