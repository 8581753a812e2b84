"""Builds schedules: `transfers.py` from columns, `composition.py` what others can be composed of."""
