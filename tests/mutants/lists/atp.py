"""Faults of ATP: its workers, switch and parameter server."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

LAW = ["tests/sim/engine/test_equivalence.py::test_plans[atp]"]
KEPT = "tests/sim/engine/test_equivalence.py::test_kept_plans"

MUTANTS: list[Mutant] = [
    *faults(
        "sim/engine/transports/atp_worker.py",
        LAW,
        [
            (
                "the window ends one unit late",
                "stream.window_end = window_packets(world, row) - 1",
                "stream.window_end = window_packets(world, row)",
            ),
            (
                "a gap is resent up to and with the unit that shows it",
                "        stream.resent = first\n        send_again(world.clock[0].at, row, first)",
                "        stream.resent = first\n        send_again(world.clock[0].at, row, first + 1)",
            ),
            (
                "the same gap is resent by every result",
                "if first >= 0 and stream.base >= stream.resent:",
                "if first >= 0:",
            ),
            (
                "a window grows beyond its bound",
                "min(window_max * frame, stream.window_bytes + INCREASE_BYTES)",
                "stream.window_bytes + 0 * window_max + INCREASE_BYTES",
            ),
            (
                "a marked window shrinks to nothing",
                "max(frame, stream.window_bytes // 2)",
                "max(1, stream.window_bytes // 2)",
            ),
            (
                "a proposed entry is ignored",
                "    if packet.transmission >= 0:\n        place.entry",
                "    if packet.transmission > 0 * place.entry + (1 << 40):\n        place.entry",
            ),
            (
                "a timeout sends one unit too many",
                "first if first >= 0 else stream.base + 1)",
                "first if first >= 0 else min(stream.next, stream.base + 2))",
            ),
            (
                "a stale result puts off the timer",
                "    unit = packet.unit\n    stream.deadline_ps = world.clock[0].now_ps + job.timeout_ps\n",
                "    unit = packet.unit\n    if unit >= stream.base:\n        stream.deadline_ps = world.clock[0].now_ps + job.timeout_ps\n",
            ),
        ],
    ),
    *faults(
        "sim/engine/switches/atp_switch.py",
        LAW,
        [
            ("an evicted entry stays claimed", "        atp.free(world.entries, entry)\n", "        pass\n"),
            (
                "resends count as collisions",
                "        if not is_resend:\n            packet.flags |= COLLIDED\n            point.collisions += 1\n"
                "            world.clock[0].lost_ps = world.clock[0].now_ps",
                "        if not is_resend:\n            packet.flags |= COLLIDED\n            world.clock[0].lost_ps = world.clock[0].now_ps\n"
                "        point.collisions += 1",
            ),
        ],
    ),
    *faults(
        "sim/engine/switches/atp_server.py",
        LAW,
        [
            (
                "the server adds a complete packet to what it has",
                "    if packet.bits == full and not is_float:\n        got[unit] = np.uint32(0)",
                "    if packet.bits == full and is_float:\n        got[unit] = np.uint32(0)",
            ),
            (
                "a sum at the limit passes for one below",
                "return bool(largest >= WORD_MAX)",
                "return bool(largest > WORD_MAX)",
            ),
            ("a proposed entry may be proposed again", "            used[candidate] = 1\n", ""),
            (
                "the answer is the highest worker's",
                "while not (packet.bits >> np.uint32(lowest)) & np.uint32(1):",
                "while packet.bits >> np.uint32(lowest + 1) != 0:",
            ),
        ],
    ),
    *faults(
        "sim/engine/switches/atp_switch.py",
        [f"{KEPT}[entry_of_a_stream_long_over]"],
        [
            (
                "streams of a job share identities",
                "(np.int64(packet.serial) << 31)",
                "(np.int64(packet.serial & 1) << 31)",
            ),
        ],
    ),
    *faults(
        "sim/engine/switches/atp_switch.py",
        [f"{KEPT}[mark_of_an_earlier_packet]"],
        [
            (
                "a forwarded packet forgets the entry's mark",
                "    packet.is_marked = world.entries.rows[entry].is_marked\n",
                "",
            ),
        ],
    ),
]
