"""Every codec on every collective: which pairs work, and what they take.

cells.py       one codec on one collective, run without loss and with it, or refused
make.py        all of them
table.py       what is printed, and the page `docs/matrix.md`
"""
