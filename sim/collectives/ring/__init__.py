"""Ring all-reduce (Patarasuk and Yuan, JPDC 2009): `spec.py` says what it is, `run.py` carries it out."""
