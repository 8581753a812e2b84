"""Optimizers: how a mean gradient moves weights. `rule.py` is the contract, `registry.py` has all."""
