"""Deliberate faults, one at a time, and the tests that must notice them: `make mutants`.

`lists/` are the faults. `rewrite.py` puts all of them into one copy of the sources, each behind a switch that
is read at run time, so that kernels compile once; `play.py` runs each fault's tests with its switch on.
"""
