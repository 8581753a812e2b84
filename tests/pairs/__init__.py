"""Every pair of kinds in one array of small scenarios, each judged from outside.

array.py       rows that have all pairs (or triples) of the values of some factors
factors.py     the factors and their values, small sections of any kind, and what netfold has to refuse
scenario.py    a row as a scenario, on a small network of any kind; a row for each combination that is refused
judge.py       runs a row, and compares sums, merges and packets with plain NumPy
"""
