"""Deliberate faults, one at a time, and whether the tests next to the code notice them: `make mutants`.

`operators.py` makes faults from the syntax trees of the sources, `by_hand.py` has some that need thought, and
`draw.py` chooses. `edits.py` puts them into one copy of the sources (`tree.py`), each behind a switch that is
read at run time, so that kernels compile once; `play.py` runs the tests near each fault (`nearby.py`) with it
on.
"""
