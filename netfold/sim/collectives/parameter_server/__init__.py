"""Parameter servers: `spec.py` has their keys and schedule, `run.py` the workers, `serve.py` the servers."""
