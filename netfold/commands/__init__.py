"""The command line: one file per group of commands; what they print as tables is in `listings.py`."""
