"""Which host sends which words to whom, and where they are merged: a file or folder for each collective.

A collective takes the messages of one network operation from each worker's process, at that worker's time,
and gives each worker the merged words when they have arrived there. `spec.py` says what a collective is made
of, `registry.py` lists all; `between_hosts.py` and `host_messages.py` hold what those without switches share.
"""
