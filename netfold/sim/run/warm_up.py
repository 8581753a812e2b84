"""Compile the engine's kernels before a run, if they are not on disk yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from netfold.homomorphic.message import Merge
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.interface import Flow, Job, Segment
from netfold.sim.engine.loop.loop import run_until
from netfold.sim.network.fabric import Sampler
from netfold.sim.plan.plan import frame_of
from netfold.topologies.graph import LinkSpec
from netfold.topologies.kinds.star import star
from netfold.topologies.network import compile_network
from netfold.units import PS_PER_S

COMPILING = "compiling kernels (once, about a minute)"
_LOOP = "loop.run_until-*.nbi"  # the index of the event loop's compiled code


def is_cold() -> bool:
    """Whether the packet engine has to be compiled first.

    Numba names compiled code by the path of its source, in a folder that is named by a hash of all sources.
    """
    loop: Any = run_until
    folder = loop.stats.cache_path
    return not folder or not any(Path(folder).glob(_LOOP))


def compile_engine() -> None:
    """Compile the packet engine by a run of two workers that send a few words; takes about a minute."""
    engine = Engine(compile_network(star(2, LinkSpec(10**11, 10**6, 1 << 20))), 0)
    frame, timeouts = frame_of("roce-1024"), (PS_PER_S, PS_PER_S, PS_PER_S)
    words = np.zeros(frame.elements, np.int32)
    engine.add_job(Job((0, 1), 2, 0, 1, 1, frame, *timeouts, routes=(0, 0)))
    for worker in range(2):
        engine.open_stream(0, worker, [Segment(words, words.copy(), Merge.ADD)])
    engine.open_flow(Flow(0, 1, words.size, words, words.copy(), frame, 2, PS_PER_S, 1, 0, 0))
    sampler = Sampler(engine, 1)
    sampler.add_job(0)
    sampler.open()
    done = 0
    while done < 3:
        done += len(engine.run(PS_PER_S))
    sampler.close()
