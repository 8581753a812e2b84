"""All-reduce on a 2-D torus: `spec.py` has its keys, `grid.py` says who owns what, `run.py` runs it."""
