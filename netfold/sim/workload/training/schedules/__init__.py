"""Schedules of the learning rate: a file each; `rule.py` is the contract, `registry.py` has all."""
