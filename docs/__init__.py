"""Documents, and the experiments that make their tables."""
