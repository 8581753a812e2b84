"""What goes wrong in a handler that is compiled apart does not stay there."""

from __future__ import annotations

import pytest

from netfold.homomorphic.kernels.cache import folder_of
from netfold.sim.engine.engine import Engine
from netfold.sim.engine.interface import Fate, Rule
from netfold.sim.engine.loop.cold_handlers import rare_handler
from netfold.topologies.graph import LinkSpec
from netfold.topologies.kinds.star import star
from netfold.topologies.routing import compile_network
from tests.sim.engine.small import MIDDLE, flow, gradients


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_error_in_a_handler_stops_the_engine() -> None:
    """A duplicate needs a free packet; here the table has none and is not enlarged."""
    network = compile_network(star(2, LinkSpec(10**9, 0, 1 << 20)))
    engine = Engine(network, 1, [Rule(Fate.DUPLICATE, 1.0, (2, 3))])
    (words,) = gradients(1, 4)
    engine.open_flow(flow(0, 1, words, MIDDLE))
    engine._make_room = lambda reserve: None  # type: ignore[method-assign]
    engine._reserve = 0
    engine.world.clock[0].packet_free_count = 0

    with pytest.raises(RuntimeError, match="a compiled handler failed"):
        engine.run(10**12)


def test_handlers_are_cached_with_the_kernels() -> None:
    """Beside its source Numba would notice changes of that file alone, not of the kernels that it calls."""
    assert rare_handler() != 0

    folder = folder_of("netfold.sim.engine.loop.cold_handlers")
    assert folder is not None
    assert list(folder.rglob("cold_handlers._rare-*.nbi"))
