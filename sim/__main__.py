"""`python -m sim` is the `netfold` command."""

from sim.cli import main

main()
