"""`make bench`: packet-hops per CPU-second of the engine beside ns.py; engine and codecs beside memory.

Rates depend on the machine and its load; compare the ratios.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table

from netfold.homomorphic.merge import Merge
from tests.bench import codecs, loads, nspy, sweeps
from tests.bench import loads as rings
from tests.bench.loads import Measured

REPEATS = 5
W1_PACKETS = 100_000  # per host: 100 MB
NSPY_PACKETS = 5_000  # ns.py is slow, and its rate does not depend on the length
W2_PACKETS, W2_NSPY_PACKETS = 4_000, 100  # per host
W2_LEAST = 150  # times the rate of ns.py
# Packets per host by k: 4 M hops at least, and many times the window of 512, as W1 has it. All of a window is
# in flight at once, in the host's queue and on the way: 1,024 hosts have half a million packets.
CURVE = {4: 60_000, 6: 16_000, 8: 6_000, 10: 4_000, 12: 3_000, 16: 3_000}
W4_ELEMENTS = 25_000_000  # 100 MB of float32
W1_IDEAL_MS, W4_BOUND_MS = 8.00208, 8.6407
ELSEWHERE = """measured elsewhere: SwitchML-omnetpp 1.2 M on W4, without values;
    htsim 7 M on W1 and 2.9 M on W2"""


def best(load: Callable[[], Measured]) -> Measured:
    """The fastest of some runs: the others were disturbed."""
    return min((load() for _ in range(REPEATS)), key=lambda run: run.cpu_s)


def copy_rate(array: np.ndarray) -> float:
    """Bytes per second of copying into memory already touched."""
    target, seconds = np.ones_like(array), []
    for _ in range(REPEATS):
        started = time.process_time()
        np.copyto(target, array)
        seconds.append(time.process_time() - started)
    return array.nbytes / min(seconds)


def curve() -> Table:
    """Cost of a packet-hop on fat trees of more and more hosts; flows are opened within the time."""
    table = Table("W2 on hosts", "links", "ns / packet-hop", "of the first")
    first = 0.0
    for k, packets in CURVE.items():
        cost_ns = 1e9 / best(lambda k=k, packets=packets: loads.w2(packets, k)).hops_per_cpu_s
        first = first or cost_ns
        table.add_row(f"{k**3 // 4:,}", f"{3 * k**3 // 2:,}", f"{cost_ns:.1f}", f"{cost_ns / first:.2f} ×")
    return table


def ring_table() -> Table:
    """Rings that the engine carries out as schedules: W3, with values, and the cost of a hop by hosts."""
    rings.ring(2, 100, merge=Merge.ADD)
    table = Table("ring", "packet-hops", "CPU s", "ns / hop", "simulated ms", "stored and forwarded ms")
    rows = [
        ("W3: 1,024 hosts, 100 MB", 1024, W4_ELEMENTS, rings.ring(1024, W4_ELEMENTS)[0]),
        ("512 hosts, values summed", 512, 512_000, rings.ring(512, 512_000, merge=Merge.ADD)[0]),
    ]
    for hosts in rings.CURVE:
        point = best(lambda hosts=hosts: rings.curve_point(hosts))
        rows.append((f"curve: {hosts:,} hosts", hosts, 0, point))
    for name, hosts, words, run in rows:
        cost_ns = 1e9 / run.hops_per_cpu_s
        stored = f"{rings.stored_ms(hosts, words):.5f}" if words else ""
        figures = (f"{run.packet_hops:,}", f"{run.cpu_s:.2f}", f"{cost_ns:.0f}", f"{run.simulated_ms:.5f}")
        table.add_row(name, *figures, stored)
    return table


def main() -> None:
    loads.w1(10)
    buffers = loads.w4_words(W4_ELEMENTS)
    loads.w4([[words[:256], sums[:256]] for words, sums in buffers])
    theirs = best(lambda: nspy.w1(NSPY_PACKETS))
    ours = best(lambda: loads.w1(W1_PACKETS))
    theirs_w2 = best(lambda: nspy.w2(W2_NSPY_PACKETS))
    ours_w2 = best(lambda: loads.w2(W2_PACKETS))
    summed = best(lambda: loads.w4(buffers))
    right = sum(words.astype(np.int64) for words, _ in buffers).astype(np.int32)
    is_right = all(np.array_equal(sums, right) for _, sums in buffers)
    copied = copy_rate(buffers[0][0])

    table = Table("load", "packet-hops", "CPU s", "M hops / CPU-s", "simulated ms", "ideal ms")
    for name, run, ideal in (
        ("W1 netfold", ours, W1_IDEAL_MS),
        ("W1 ns.py", theirs, NSPY_PACKETS * 8e-5 + 0.00208),
        ("W2 netfold", ours_w2, None),
        ("W2 ns.py", theirs_w2, None),
        ("W4 netfold, values summed", summed, W4_BOUND_MS),
    ):
        figures = (f"{run.packet_hops:,}", f"{run.cpu_s:.3f}", f"{run.hops_per_cpu_s / 1e6:.3f}")
        table.add_row(name, *figures, f"{run.simulated_ms:.5f}", f"{ideal:.5f}" if ideal else "")
    console = Console(width=100)
    console.print(table)
    # A hop up reads a packet's words; a hop down writes them, and the line is read before it is written.
    moved = 4 * W4_ELEMENTS * loads.HOSTS * 3 / summed.cpu_s
    console.print(f"W1: {ours.hops_per_cpu_s / theirs.hops_per_cpu_s:.0f} × ns.py")
    ratio = ours_w2.hops_per_cpu_s / theirs_w2.hops_per_cpu_s
    is_held = "ok" if ratio >= W2_LEAST else "below"
    console.print(f"W2: {ratio:.0f} × ns.py (held to {W2_LEAST} ×: {is_held})")
    console.print(curve())
    console.print(f"W4: every sum right: {is_right}; moves {moved / 1e9:.1f} GB/s of gradient words,")
    console.print(
        f"    {moved / (3 * copied):.0%} of what copying them would (copyto: {copied / 1e9:.1f} GB/s in)"
    )
    console.print(ELSEWHERE)
    console.print(ring_table())
    measured, bars = codecs.measure_all()
    console.print(measured)
    console.print("What netfold is held to, one thread, from the rates above:")
    console.print(bars)
    sweeps.main()


if __name__ == "__main__":
    main()
