"""`python -m rld2` is the command `rld2`."""

from rld2.cli import main

main()
