"""Collectives that are schedules: their laws, their times against an event simulation, and whole runs."""
