"""All-gather round a ring: `spec.py` has its keys and schedule, `run.py` runs it."""
