"""Recursive halving and doubling: `schedule.py` builds its schedule, `spec.py` has its keys and closed form."""
