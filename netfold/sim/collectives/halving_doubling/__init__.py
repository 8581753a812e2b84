"""Recursive halving and doubling: `schedule.py` builds it, `spec.py` has its keys and closed form."""
