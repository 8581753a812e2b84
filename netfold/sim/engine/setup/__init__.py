"""Filling and enlarging the engine's tables, between runs of the compiled loop."""
