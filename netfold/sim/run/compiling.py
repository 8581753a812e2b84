"""Kernels are compiled at their first use; here the engine's are, beside the run, in a process of its own.

Numba compiles under a lock, so a second thread would wait. The process leaves compiled code where the run
looks for it. Meanwhile the run makes its gradients. When it needs the engine and that is not ready, it
compiles handlers that the process leaves out, and what observes the network, and it rehearses: it encodes,
decodes and checks a few numbers with the codecs of the plan.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from netfold.homomorphic.codec import Codec, make_encoder
from netfold.homomorphic.fold import fold
from netfold.homomorphic.merge import Merge
from netfold.homomorphic.message import Round
from netfold.kernels.compile_progress import COMPILING, counts, elsewhere, observed
from netfold.kernels.compiled import threads_count
from netfold.sim.checks.round_checks import Totals, compare
from netfold.sim.checks.round_findings import NOTHING_EXEMPT
from netfold.sim.engine import tables
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.engine_data import Flow, Job, Segment, Sender
from netfold.sim.engine.engine_views import in_flight
from netfold.sim.engine.loop import HANDLERS, run_until
from netfold.sim.network.fabric import Sampler
from netfold.sim.plan.plan import JobPlan, frame_of
from netfold.topologies.graph import LinkSpec
from netfold.topologies.kinds.star import star
from netfold.topologies.network import compile_network
from netfold.units import PS_PER_S

_LOOP = "loop.run_until-*.nbi"  # the index of the event loop's compiled code
_ELSEWHERE = ("netfold.sim.engine.loop.run_until", "netfold.sim.engine.switchml_stream.open_stream")
_REHEARSED = 5000  # elements: several blocks of every codec
_FOR_AGGREGATION = (tables.EMIT, tables.MERGE_WITHOUT_OVERFLOW, tables.STREAM_EXPIRES)
_OFTEN_NEEDED = (  # one request to each of the engine's handlers but ATP's
    *_FOR_AGGREGATION,
    tables.FLOW_EXPIRES,
    tables.HELD_ARRIVES,
    tables.SLOT_EXPIRES,
    tables.APPLY_FAULTS,
    tables.LIFT,
    tables.RESEND_UNIT,
    tables.PARENT_RESULT,
    tables.WRITE_LOG,
    tables.GO_ON,
)


def is_cold() -> bool:
    # Numba names compiled code by the path of its source, in a folder that is named by a hash of all sources.
    folder = _folder()
    return folder is None or not any(folder.glob(_LOOP))


def _folder() -> Path | None:
    loop: Any = run_until
    return Path(loop.stats.cache_path) if loop.stats.cache_path else None


def _between_two() -> Engine:
    return Engine(compile_network(star(2, LinkSpec(10**11, 10**6, 1 << 20))), 0)


def compile_engine(is_whole: bool = False) -> None:
    """Compile what every run needs of the packet engine but its handlers, or all but ATP.

    Two workers send a few words, which do not arrive unless handlers may be called.
    """
    engine = _between_two()
    frame = frame_of("roce-1024")
    words = np.zeros(frame.elements, np.int32)
    engine.add_job(Job((0, 1), 2, 0, 1, Sender(frame, 1, PS_PER_S, 1, PS_PER_S), routes=(0, 0)))
    for worker in range(2):
        engine.open_stream(0, worker, [Segment(words, words.copy(), Merge.ADD)])
    if not is_whole:
        engine.run(0)
        return
    engine.open_flow(Flow(0, 1, words.size, words, words.copy(), Sender(frame, 2, PS_PER_S), 0, 0))
    sampler = Sampler(engine, 1)
    sampler.add_job(0)
    sampler.open()
    for request in _OFTEN_NEEDED:
        HANDLERS.compile(request)
    done = 0
    while done < 3:
        done += len(engine.run(PS_PER_S))
    sampler.close()


@contextmanager
def compiling(progress: Callable[[str, float, float], None], jobs: Sequence[JobPlan] = ()) -> Iterator[None]:
    """Tell how many kernels are compiled, of those known to be needed; the engine's are compiled beside.

    Meanwhile all is compiled that `jobs` need, codecs of netfold at least: nobody else's code is called.
    """
    others = [0, 0]

    def tell(done: int, known: int) -> None:
        progress(COMPILING, done + others[0], known + others[1])

    def wait() -> None:
        assert process.stdout is not None
        if any(job.collective.aggregations for job in jobs):
            for request in _FOR_AGGREGATION:
                HANDLERS.compile(request)
        _observe()
        _rehearse([job.codec for job in jobs])
        for line in process.stdout:
            others[:] = map(int, line.split())
            tell(*counts())
        process.wait()

    with observed(tell):
        if not is_cold() or _folder() is None or threads_count() == 1:
            yield
            return
        command = [sys.executable, "-P", "-m", __name__]  # -P: nothing is imported from the working folder
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            with elsewhere(_ELSEWHERE, wait):
                yield
        finally:
            process.kill()
            process.communicate()


def _observe() -> None:
    engine = _between_two()
    Sampler(engine, 1).open()
    in_flight(engine.world)


def _rehearse(codecs: Sequence[Codec]) -> None:
    numbers = np.arange(_REHEARSED, dtype=np.float32)
    gradient = np.where(numbers % 16 == 0, numbers, np.float32(0))
    for codec in codecs:
        if type(codec).__module__.startswith("netfold."):
            with suppress(Exception):  # what is wrong with a codec, the run says
                encoders = [make_encoder(codec, rank, 2, 0) for rank in range(2)]
                folded = fold(encoders, [gradient] * 2, Round(0, 0, 2, 0))
                totals = Totals([gradient] * 2, folded.contributions, [(folded.decoded[0], None)])
                compare(codec, totals, NOTHING_EXEMPT)


if __name__ == "__main__":
    with observed(lambda done, known: print(done, known, flush=True)):
        compile_engine()
