"""Optimizers: how a mean gradient moves weights. A file each; `rule.py` is the contract, `registry.py` has all."""
