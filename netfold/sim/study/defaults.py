"""What a study is made on where nothing else is said; imports nothing, so that `--help` stays quick."""

from __future__ import annotations

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
