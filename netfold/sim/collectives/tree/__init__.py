"""Binary trees: `schedule.py` builds their schedule, `spec.py` has their keys and closed form."""
