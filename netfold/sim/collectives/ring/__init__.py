"""Ring all-reduce (Patarasuk and Yuan, JPDC 2009): `spec.py` has its keys and schedule, `run.py` runs it."""
