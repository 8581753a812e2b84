"""The resolved scenario as frozen data, and what can be said of it without a run."""
