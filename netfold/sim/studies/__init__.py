"""Studies over many runs or without a network: sweeps, codecs, the matrix, topologies, this machine.

Here is what a study of codecs is made on where nothing else is said: this file imports nothing, so that
`--help` stays quick.
"""

WORKERS = 8
ROUNDS = 3
MADE_UP = {  # keys of a scenario's synthetic workload
    "elements": "1e6",
    "density": "0.1%,1%,10%",
    "pattern": "iid",
    "row_elements": "64",
    "overlap": "0%",
    "distribution": "normal",
}
