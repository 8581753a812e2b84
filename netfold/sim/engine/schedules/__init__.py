"""Schedules between hosts: what is sent when, and the merges at their workers (README, Schedules)."""
