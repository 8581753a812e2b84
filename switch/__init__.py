"""The emulated switch: what it can do (profiles, fit) and what it runs (programs)."""
