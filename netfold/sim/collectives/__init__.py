"""Collectives: which host sends which words where, and where they are merged; one file for each kind.

A collective takes the messages of a network operation from each worker's process when the worker sends them,
and returns the merged words when they have arrived at that worker. `collective.py` defines the parts of a
collective, `registry.py` lists all; `host_collective.py` and `host_messages.py` are shared by those between
hosts.
"""
