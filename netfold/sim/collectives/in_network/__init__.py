"""Aggregation in switches: which of them add up, what they are asked for, and what they refuse."""
