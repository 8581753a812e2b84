"""Execution of a plan: variants, jobs, and the fault driver."""
