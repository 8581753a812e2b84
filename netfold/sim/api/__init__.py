"""The Python API: `import netfold` imports it from here.

plans.py       validate a scenario
runs.py        run one; load and compare runs; a `Run` has its results as tables
codecs.py      study or fold codecs without a network
matrix.py      run every codec on every collective
devices.py     measure this machine as a device
given.py       convert scenarios and values from Python to the text of scenario files
"""
