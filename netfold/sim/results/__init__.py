"""A run's results: computed from records, written as one folder that is complete or absent, and read back."""
