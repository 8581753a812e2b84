"""`python -m tests.bench.against COMMIT`: the engine's rates here and at another commit, in turns.

Each turn is a separate process; the best turn counts, as the others were disturbed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TURNS = 3
HERE = Path(__file__).parents[2]
SCRIPT = """
import json
from tests.bench import loads
loads.w1(10)
buffers = loads.w4_words(25_000_000)
loads.w4([[words[:256], sums[:256]] for words, sums in buffers])
loads.w2(10)
print(json.dumps([max(loads.w1(100_000).hops_per_cpu_s for _ in range(4)),
                  max(loads.w2(2_000).hops_per_cpu_s for _ in range(3)),
                  max(loads.w4(buffers).hops_per_cpu_s for _ in range(4))]))
"""


def rates(folder: Path) -> list[float]:
    """Packet-hops per CPU-second of W1, W2 and W4 with the source in a folder."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    found: list[float] = json.loads(
        subprocess.check_output([sys.executable, "-c", SCRIPT], cwd=folder, env=environment, text=True)
    )
    return found


def main(commit: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder) / "there"
        subprocess.run(["git", "worktree", "add", "--detach", there, commit], cwd=HERE, check=True)
        try:
            turns = [(rates(there), rates(HERE)) for _ in range(TURNS)]
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", there], cwd=HERE, check=True)
    for index, load in enumerate(("W1", "W2", "W4")):
        before = max(turn[0][index] for turn in turns)
        now = max(turn[1][index] for turn in turns)
        print(
            f"{load}: {before / 1e6:.2f} M hops/CPU-s at {commit}, {now / 1e6:.2f} M here: {now / before:.3f}"
        )


if __name__ == "__main__":
    main(sys.argv[1])
