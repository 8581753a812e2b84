"""Messages that every worker gets whole: when each has them, and that they are the very words sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netfold.homomorphic.merge import Merge
from netfold.homomorphic.message import Message
from netfold.sim.collectives.host_messages import chunks_of
from netfold.sim.collectives.kinds.parameter_server import ServerPlan
from tests.examples import examples
from tests.reference.collectives import programs
from tests.sim.collectives.test_schedules import Timed, on, tree_network
from tests.sim.exchanges import FRAME, gathering, serving
from tests.sim.scenes import DENSE, Exchanged, job_plan, only, small_star

WINDOWS = [(4, 2), (40, 4), (512, 16)]


@examples(12)
@given(data=st.data())
def test_every_worker_has_all_messages_when_the_oracle_says(data: st.DataObject) -> None:
    """On random trees of switches: messages of any lengths, chunks of any size, small windows."""
    workers = data.draw(st.integers(1, 6), label="workers")
    sizes = data.draw(st.lists(st.integers(0, 300), min_size=workers, max_size=workers), label="words")
    chunk_words = data.draw(st.sampled_from([1, 3 * FRAME.elements, 40 * FRAME.elements]), label="chunk")
    chunk_words = max(chunk_words, -(-max(sizes) // 12))  # the oracle takes its time
    has_server = workers > 1 and data.draw(st.booleans(), label="server")
    network = tree_network(data, workers + has_server)
    window, ack_every = data.draw(st.sampled_from(WINDOWS))
    keys: Any = {"chunk_words": chunk_words, "window": window, "ack_every": ack_every, "timeout_ps": 10**11}
    hosts = on(network, max(1, *sizes), window, ack_every)
    if has_server:
        programs.through_a_server(hosts, sizes, chunk_words, [*range(1, workers), 0])
        start = serving(workers, 1, **keys)
    else:
        programs.all_gather(hosts, sizes, chunk_words)
        start = gathering(workers, **keys)
    hosts.links.run()
    messages = [Message(np.arange(size, dtype=np.int32), Merge.GATHER, "words") for size in sizes]

    timed = Timed(network, start)
    ends_ps = timed.timed(messages)

    assert ends_ps == {rank: hosts.done_ps[rank] for rank in range(workers)}


@pytest.mark.parametrize(("words", "sizes"), [(0, [0]), (4, [4]), (8, [4, 4]), (9, [4, 4, 1])])
def test_chunks_cover_a_message(words: int, sizes: list[int]) -> None:
    assert [chunk.size for chunk in chunks_of(np.zeros(words, np.int32), 4)] == sizes


def test_servers_beside_workers_are_spread_over_them(tmp_path: Path) -> None:
    beside = "collective={kind: parameter_server, servers: 2, placement: beside_workers}"
    plan = job_plan(only(tmp_path, beside, DENSE, "workers=4")).collective
    assert isinstance(plan, ServerPlan)
    assert plan.owners == (0, 2)


@pytest.mark.parametrize("workers", [2, 3, 7])
def test_all_workers_share_one_sum(workers: int) -> None:
    messages = [Message(np.full(50, rank, np.int32), Merge.ADD, "words") for rank in range(workers)]

    done = Exchanged(small_star(workers), gathering(workers)).run([[(message,)] for message in messages])

    received = [merged.words for ((merged,),) in done.received]
    assert all(words is received[0] for words in received)
    assert received[0].tolist() == [sum(range(workers))] * 50
