"""The law: whatever keeps packets in line, and ends, costs time and never a sum."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.sim.scenes import RING, simulate

SETS = ("workload.elements=3000", "workload.steps=2", "collective.timeout=1ms")
SMALL = ("collective.slots=8", "collective.first_timeout=200us")

RATES = st.sampled_from(["0%", "1%", "5%"])
LINKS = st.sampled_from(["'*'", "'h*->s0'", "'s0->h1'", "'h2->s0', 's0->*'"])
TIMES = st.sampled_from(["0s", "3us", "5us", "20us", "210us"])
STRETCHES = st.sampled_from(["1us", "30us", "700us"])
WORKERS = st.integers(0, 2)
FAULTS = st.one_of(
    st.builds("kind: loss, rate: {}, links: [{}], from: {}".format, RATES, LINKS, TIMES),
    st.builds("kind: corruption, rate: {}, links: [{}]".format, RATES, LINKS),
    st.builds("kind: duplicate, rate: {}, links: [{}]".format, RATES, LINKS),
    st.builds("kind: link_down, links: [{}], at: {}, for: {}".format, LINKS, TIMES, STRETCHES),
    st.builds("kind: link_rate, links: [{}], at: {}, for: {}, rate: 5Gbps".format, LINKS, TIMES, STRETCHES),
    st.builds("kind: switch_reboot, switch: s0, at: {}, clears: tables, for: {}".format, TIMES, STRETCHES),
    st.builds("kind: worker_pause, worker: {}, at: {}, for: {}".format, WORKERS, TIMES, STRETCHES),
    st.builds("kind: start_skew, worker: {}, delay: {}".format, WORKERS, STRETCHES),
)


@examples(60)
@given(st.lists(FAULTS, max_size=5), st.sampled_from([(), SMALL, (RING,)]))
def test_sums_are_right_and_every_packet_is_accounted_for(
    faults: list[str], collective: tuple[str, ...]
) -> None:
    written = f"faults=[{', '.join('{' + fault + '}' for fault in faults)}]"
    with tempfile.TemporaryDirectory() as folder:
        result = simulate(Path(folder), *collective, *SETS, written)

    assert [check for check in result.checks if check.verdict != "pass"] == []
    struck = sum(record.count for record in result.faults if record.kind in ("loss", "corruption"))
    lost = sum(link.lost_packets for link in result.links)
    assert struck == lost or (struck < lost and re.search("link_down|switch_reboot", written))
