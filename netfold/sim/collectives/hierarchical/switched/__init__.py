"""Hierarchies whose inner or outer collective runs in switches: see `resolve.py` for their closed form."""
