"""Fusion: which layers' gradients are sent together, as one bucket.

A rule is one file: its keys in a scenario (a `FusionSection`), and a `Fusion` that turns layers into a
partition. `registry.py` lists the sections; all other code knows no rule by name.
"""
