"""Collectives between hosts as an event simulation in plain Python, written from the papers."""
