"""Collectives: which host sends which words where, and where they are merged; one file or folder each.

A collective takes the messages of a network operation from each worker's process when the worker sends them,
and returns the merged words when they have arrived at that worker. `spec.py` defines the parts of a
collective, `registry.py` lists all; `between_hosts.py`, `host_messages.py` and `channels.py` are shared by
those between hosts.
"""
