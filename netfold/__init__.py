"""netfold: what happens to a gradient, on this network, under this encoding?

    import netfold

    run = netfold.run("mine.yaml", set={"topology.rate": "25Gbps"})
    run.verdict                     # "pass"; print(run) shows the table that `netfold run` prints
    run.variants                    # a polars data frame: a row for every variant, a column for every metric
    run.rounds, run.links           # the other tables of the run's folder, run.path
    run.figure()                    # the figure that shows its answer, as SVG
    run.totals(0), run.weights()    # arrays of a step, where the scenario says keep: [totals, weights]

    netfold.sweep("mine.yaml", over={"workers": [4, 16, 64]}).points    # every point in parallel; resumable

    netfold.validate("mine.yaml")   # all mistakes at once, without running it
    netfold.compare(run, netfold.load("runs/latest"))
    netfold.explain(run).advice     # what would shorten a step, and by how much
    netfold.study(["packed", "lossless:load=0.7"], gradients)    # codecs without a network
    netfold.fold("packed", gradients).decoded[0]                 # one sum, as a worker decodes it
    netfold.matrix(["packed", "topk"])                           # which collectives carry them, how fast
    netfold.calibrate("cpu.json")                                # this machine, as a device for scenarios
    netfold.topology.measure("star", set={"hosts": 8})           # networks without a run
    with netfold.capture(ddp_model, "trace", steps=10): ...      # record a real training, to replay it here

`import netfold.torch` adds the codecs to real training: a communication hook of PyTorch's DDP, and FSDP2.

`register` adds your own codec, topology or whatever else a scenario can name; `netfold.testing` checks that a
codec obeys the law of all codecs. Errors are `NetfoldError`s: each says where the mistake is, what was found,
and how to fix it.

Names are imported at their first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from netfold import testing, topology
    from netfold.api import Run, calibrate, compare, explain, load, run, validate
    from netfold.errors import DataError, InvariantError, NetfoldError, RunError, ScenarioError
    from netfold.homomorphic.codec import codec_kinds as codecs
    from netfold.kinds import register
    from netfold.sim.capture.capture import capture
    from netfold.sim.report.compare import Comparison
    from netfold.sim.studies.codec_study import CodecStudy, fold, study
    from netfold.sim.studies.explain import Explanation
    from netfold.sim.studies.matrix import MatrixResult, matrix
    from netfold.sim.studies.sweep import sweep
    from netfold.sim.studies.sweep_output import SweepResult

__all__ = [
    "CodecStudy",
    "Comparison",
    "DataError",
    "Explanation",
    "InvariantError",
    "MatrixResult",
    "NetfoldError",
    "Run",
    "RunError",
    "ScenarioError",
    "SweepResult",
    "calibrate",
    "capture",
    "codecs",
    "compare",
    "explain",
    "fold",
    "load",
    "matrix",
    "register",
    "run",
    "study",
    "sweep",
    "testing",
    "topology",
    "validate",
]

_LOCATIONS = {
    "CodecStudy": "netfold.sim.studies.codec_study:CodecStudy",
    "Comparison": "netfold.sim.report.compare:Comparison",
    "DataError": "netfold.errors:DataError",
    "Explanation": "netfold.sim.studies.explain:Explanation",
    "InvariantError": "netfold.errors:InvariantError",
    "MatrixResult": "netfold.sim.studies.matrix:MatrixResult",
    "NetfoldError": "netfold.errors:NetfoldError",
    "Run": "netfold.api:Run",
    "RunError": "netfold.errors:RunError",
    "ScenarioError": "netfold.errors:ScenarioError",
    "SweepResult": "netfold.sim.studies.sweep_output:SweepResult",
    "calibrate": "netfold.api:calibrate",
    "capture": "netfold.sim.capture.capture:capture",
    "codecs": "netfold.homomorphic.codec:codec_kinds",
    "compare": "netfold.api:compare",
    "explain": "netfold.api:explain",
    "fold": "netfold.sim.studies.codec_study:fold",
    "load": "netfold.api:load",
    "matrix": "netfold.sim.studies.matrix:matrix",
    "register": "netfold.kinds:register",
    "run": "netfold.api:run",
    "study": "netfold.sim.studies.codec_study:study",
    "sweep": "netfold.sim.studies.sweep:sweep",
    "testing": "netfold.testing",
    "topology": "netfold.topology",
    "validate": "netfold.api:validate",
}
_RENAMED = {
    "Matrixed": "netfold.MatrixResult",
    "Studied": "netfold.CodecStudy",
    "Swept": "netfold.SweepResult",
}

if not TYPE_CHECKING:  # type checkers know the names from above, and that there are no others

    def __getattr__(name: str) -> object:
        if name not in _LOCATIONS:
            now = f": it is {_RENAMED[name]} now" if name in _RENAMED else ""
            raise AttributeError(f"module 'netfold' has no attribute {name!r}{now}")
        module, _, attribute = _LOCATIONS[name].partition(":")
        imported = import_module(module)
        return getattr(imported, attribute) if attribute else imported


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
