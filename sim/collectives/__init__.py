"""Which host sends which words to whom, and where they are merged: one file per collective.

A collective takes the messages of one network operation from each worker's process, at that worker's time,
and gives each worker the merged words when they have arrived there.
"""
