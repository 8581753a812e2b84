"""`python -m netfold` is the `netfold` command."""

from netfold.sim.__main__ import main

if __name__ == "__main__":
    main()
