"""Aggregation protocols: one file each, with its specification and the effect of one packet on registers.

A new file is found: importing a program's module registers it.
"""
