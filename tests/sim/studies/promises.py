"""Whether what `netfold explain` promises first comes true: its command is run, and the gain measured.

    python -m tests.sim.studies.promises [SEED [COUNT]]

prints a line for every scenario that comes with netfold, and for COUNT that the soak draws.
"""

from __future__ import annotations

import json
import shlex
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import NamedTuple

import netfold
from netfold.errors import NetfoldError
from netfold.sim.scenario.load import load
from netfold.sim.scenario.resolve import resolve
from netfold.sim.workload.devices import NOTE
from tests import ROOT
from tests.command_line import run_command
from tests.soak.draw import draw
from tests.soak.mend import mended
from tests.soak.play import ELEMENTS_MAX, elements_of

SHIPPED = sorted(path for path in (ROOT / "scenarios").rglob("*.yaml") if "profiles" not in path.parts)
DRAWN = 100
REPAIRS_MAX = 20


class Promise(NamedTuple):
    """What was promised of a scenario, and what came of it; None: nothing was found."""

    scenario: str
    promised: float | None
    kept: float | None = None
    change: str = ""

    @property
    def error(self) -> float:
        """Of the gain, as a share of what was promised."""
        return abs((self.kept or 0.0) / (self.promised or 1.0) - 1)


def promise_of(run: netfold.Run, folder: Path, name: str = "") -> Promise:
    """Explain a run, and do what is advised first."""
    explanation = netfold.explain(run)
    if not explanation.advised:
        return Promise(name, None)
    first = explanation.advised[0]
    if NOTE in explanation.device_notes:
        raise NetfoldError(NOTE)  # no simulation repeats these times: nothing can be promised
    words = shlex.split(explanation.command(first))[1:]
    done = run_command(*words, "--out", folder, "--no-report", "--json")
    assert done.exit_code == 0, done.output
    before, after = (
        time_us(summary, explanation.name, explanation.metric)
        for summary in (run.summary, json.loads(done.stdout))
    )
    return Promise(name, first.gain, 1 - after / before, first.change)


def time_us(summary: dict[str, object], name: str, metric: str) -> float:
    """The time that a promise is about."""
    for overview in summary.get("jobs", ()):  # type: ignore[attr-defined]
        if metric in overview and overview["variant"] == name.partition("/")[0]:
            return float(overview[metric])
    entries = {entry["name"]: entry for entry in summary["variants"]}  # type: ignore[attr-defined]
    return float(entries[name]["metrics"][metric])


def drawn(seed: int, number: int, folder: Path) -> Path | None:
    """A scenario of the soak without its sweep, as far as it can run; None if it cannot, or is too large."""
    scene = draw(seed, number)
    for name, content in scene.files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    file, scenario = folder / "soak.yaml", {**scene.scenario}
    scenario.pop("sweep", None)
    for _ in range(REPAIRS_MAX):
        file.write_text(json.dumps(scenario))
        try:
            plan = resolve(load(file))
        except NetfoldError as error:
            rest = None if scene.broken else mended(scenario, error)
            if rest is None:
                return None
            scenario = rest
            continue
        return file if sum(map(elements_of, plan.variants)) <= ELEMENTS_MAX else None
    return None


def promises(files: Iterator[tuple[str, Path]], wanted: int, folder: Path) -> Iterator[Promise]:
    """Of so many scenarios with a winner."""
    for name, file in files:
        try:
            yield promise_of(netfold.run(file, set={"sweep": None}, out=folder), folder, name)
        except NetfoldError as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        wanted -= 1
        if not wanted:
            return


def all_promises(seed: int, count_drawn: int, shipped: Sequence[Path] = SHIPPED) -> Iterator[Promise]:
    with tempfile.TemporaryDirectory() as name:
        out = Path(name)
        yield from promises(
            ((str(path.relative_to(ROOT)), path) for path in shipped), len(shipped), out / "runs"
        )
        folders = ((number, out / f"{number}") for number in count())
        files = (
            (f"soak {seed}/{number}", file)
            for number, folder in folders
            if folder.mkdir() is None and (file := drawn(seed, number, folder)) is not None
        )
        if count_drawn:
            yield from promises(files, count_drawn, out / "runs")


def summary_of(found: Sequence[Promise]) -> tuple[float, float, float, list[Promise]]:
    """Median and 90th percentile of the errors, the share without advice, and promises that cost time."""
    kept = [promise for promise in found if promise.promised is not None]
    errors = sorted(promise.error for promise in kept)
    losses = [promise for promise in kept if (promise.kept or 0.0) <= 0]
    return statistics.median(errors), errors[int(0.9 * len(errors))], 1 - len(kept) / len(found), losses


if __name__ == "__main__":
    seed, wanted = (*map(int, sys.argv[1:3]), *(7, DRAWN)[len(sys.argv) - 1 :])[:2]
    results = []
    for promise in all_promises(seed, wanted, SHIPPED if len(sys.argv) < 4 else []):
        results.append(promise)
        print(*promise, sep="\t", flush=True)
    print(*summary_of(results))
