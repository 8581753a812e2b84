"""The Python API: `import netfold` imports it from here.

runs.py        validate and run scenarios and sweeps; load and compare runs; a `Run` has its results as tables
studies.py     study or fold codecs without a network; every codec on every collective
topology.py    measure, draw and export networks without a run
"""
