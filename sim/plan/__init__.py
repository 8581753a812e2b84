"""The plan: frozen data, and what can be said of it without running it."""
