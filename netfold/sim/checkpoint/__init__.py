"""Checkpoints of a run: what they hold, when they can be taken, and how a run goes on from one.

What may be stored is data alone: no code is stored, and none runs when a checkpoint is read.
"""
