"""What Python calls, beside the command line: `import netfold` finds it here.

plans.py       validate a scenario
runs.py        run one; load and compare runs; a `Run` has its results as tables
codecs.py      study or fold codecs without a network
given.py       what is given from Python, in the words of scenario files
"""
