"""Scenario files: YAML to a scenario to a plan; their keys, limits, and errors in words."""
