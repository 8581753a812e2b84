"""Every pair of kinds in one array of small scenarios, each judged from outside.

array.py       rows that have all pairs (or triples) of the values of some factors
factors.py     the factors and their values, from the registries, and what netfold has to refuse
networks.py    a small network of any kind of topology
sections.py    small sections of any kind
scenario.py    a row as a scenario
refused.py     a row for each combination that is refused
judge.py       runs a row, and compares sums, merges and packets with plain NumPy
"""
