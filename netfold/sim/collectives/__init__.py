"""Collectives: which host sends which words where, and where they are merged.

A collective takes the messages of a network operation from each worker's process when the worker sends them,
and returns the merged words when they have arrived at that worker. `collective.py` defines the parts of a
collective, `kinds/` has a file for each, which `registry.py` finds; those between hosts share
`host_collective.py` and `host_messages.py`.
"""
