"""The Python API: `import netfold` imports it from here.

runs.py        validate and run scenarios; load and compare runs; a `Run` has its results as tables
topology.py    measure, draw and export networks without a run
"""
