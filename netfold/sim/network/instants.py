"""Events at the end of an instant: after everything else that happens at a point of simulated time.

What is asked for at one instant is then decided together, by rank, whatever order SimPy's events came in.
"""

from __future__ import annotations

from enum import IntEnum

import simpy


class Stage(IntEnum):
    """The order of these events within an instant. SimPy's own events, of stages 0 and 1, come before."""

    TURN = 2  # workers agree what goes next
    DEVICE = 3  # a device chooses its next work
    NETWORK = 4  # the network goes on


class EndOfInstant(simpy.Event):
    """An event at the present time, after all events of earlier stages, also those that they cause."""

    def __init__(self, environment: simpy.Environment, stage: Stage) -> None:
        super().__init__(environment)
        self._ok, self._value = True, None
        environment.schedule(self, simpy.events.EventPriority(stage))
