"""The Python API: `import netfold` imports it from here.

runs.py        validate and run scenarios and sweeps; load and compare runs; a `Run` has its results as tables
studies.py     study or fold codecs without a network, run the matrix, measure topologies
"""
