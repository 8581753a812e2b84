"""All-reduce inside groups of workers, and across them: see `spec.py` for its keys and closed form."""
