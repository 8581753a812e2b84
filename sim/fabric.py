"""The network as one SimPy process.

It runs the compiled engine up to the next SimPy event, and turns what the engine completes into SimPy events.
Nothing above it ever sees a packet.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import simpy

from sim.engine.engine import Engine
from sim.engine.model import Completion, Flow, Scaled, Segment
from sim.errors import RunError
from sim.units import TIME

TIME_MAX_PS = 2**61  # 26 days; delays and timeouts are far shorter, so their sums fit int64
PATIENCE_PS = 60 * 10**12  # no word has got anywhere for so long, and for many timeouts: it never will
PATIENCE_TIMEOUTS = 200


class Fabric:
    """Opens streams and flows at the current time; each is an event that fires when it completes.

    `timeout_max_ps` is the longest timeout of its traffic: patience has to last for many.
    """

    def __init__(self, environment: simpy.Environment, engine: Engine, timeout_max_ps: int = 0) -> None:
        self.engine = engine
        self._patience_ps = max(PATIENCE_PS, PATIENCE_TIMEOUTS * timeout_max_ps)
        self.wall_s = 0.0  # spent in the engine
        self._environment = environment
        self._waiting: dict[tuple[str, int, int], simpy.Event] = {}
        self._wake = environment.event()
        environment.process(self._run())

    def stream(
        self, job: int, worker: int, segments: list[Segment], scaled: Scaled | None = None
    ) -> simpy.Event:
        """Start a worker's next aggregation stream; the event fires when its results are complete."""
        self.engine.advance(int(self._environment.now))
        self.engine.open_stream(job, worker, segments, scaled)
        return self._expect("stream", job, worker)

    def flow(self, flow: Flow) -> simpy.Event:
        """Start a reliable message; the event fires when it is delivered."""
        self.engine.advance(int(self._environment.now))
        return self._expect("flow", -1, self.engine.open_flow(flow))

    def _expect(self, kind: str, job: int, worker: int) -> simpy.Event:
        event = self._waiting[kind, job, worker] = self._environment.event()
        if not self._wake.triggered:
            self._wake.succeed()
        return event

    def _run(self) -> Generator[simpy.Event, Any, None]:
        environment, engine = self._environment, self.engine
        while True:
            if engine.next_event_ps() is None:
                self._wake = environment.event()
                yield self._wake
            if environment.peek() <= environment.now:  # others act at this moment: let them first
                yield environment.timeout(0)
                continue
            completions = self._advance(environment.peek())
            yield environment.timeout(engine.now_ps - environment.now)
            for completion in completions:
                self._waiting.pop((completion.kind, completion.job, completion.worker)).succeed()

    def _advance(self, horizon_ps: float) -> list[Completion]:
        """Run the engine to its next completion or to what happens next outside of it.

        Where nothing else will ever happen, the network must get on by itself: it is given patience.
        """
        if horizon_ps < TIME_MAX_PS:
            return self._run_engine(int(horizon_ps))
        while True:
            progress = self.engine.progress
            completions = self._run_engine(self.engine.now_ps + self._patience_ps)
            if completions or self.engine.next_event_ps() is None:
                return completions
            if self.engine.progress == progress or self.engine.now_ps > TIME_MAX_PS:
                raise RunError(
                    f"no word has got anywhere for {TIME.format(self._patience_ps)} of simulated time; "
                    f"waiting for {self._describe()}",
                    "look at faults and topology.buffer: a link that loses every packet never recovers, "
                    "nor does a buffer too small for what always meets in it",
                )

    def _run_engine(self, until_ps: int) -> list[Completion]:
        started = time.perf_counter()
        completions = self.engine.run(until_ps)
        self.wall_s += time.perf_counter() - started
        return completions

    def _describe(self) -> str:
        names = [
            f"worker {worker}'s aggregation" if kind == "stream" else f"message {worker}"
            for kind, _, worker in self._waiting
        ]
        return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
