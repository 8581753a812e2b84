"""The plan: frozen data, and closed forms of it."""
