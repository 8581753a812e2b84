"""Random scenarios with faults, judged by plain NumPy: `python -m tests.soak --count 2000 --seed 7`."""
