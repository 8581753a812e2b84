"""Faults of links and of what strikes packets on them."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

LAW = ["tests/sim/engine/test_equivalence.py"]
KEPT = "tests/sim/engine/test_equivalence.py::test_kept_plans"

MUTANTS: list[Mutant] = [
    *faults(
        "sim/engine/links/link.py",
        LAW,
        [
            (
                "a link is a little too fast",
                "work_ps = -(-packet.size_bytes * PS_BYTES // link.rate_bps) + link.packet_ps",
                "work_ps = packet.size_bytes * PS_BYTES // link.rate_bps + link.packet_ps",
            ),
            (
                "what fills a buffer to the byte is dropped",
                "backlog_ps > link.buffer_ps:\n        return queue_or_drop_otherwise",
                "backlog_ps >= link.buffer_ps:\n        return queue_or_drop_otherwise",
            ),
            (
                "a packet's own time counts towards its mark",
                "if backlog_ps - transmit_ps >= link.ecn_ps:",
                "if backlog_ps >= link.ecn_ps:",
            ),
            (
                "acknowledgements interrupt the packet on the wire",
                "start_ps = max(clock.now_ps, lane.free_at_ps, link.begun_leaves_ps)",
                "start_ps = max(clock.now_ps, lane.free_at_ps)",
            ),
            (
                "acknowledgements take no time from the rest",
                "    link.shift_ps += transmit_ps if first_waiting(world, index) >= 0 else 0\n",
                "",
            ),
            (
                "dropped bytes are not counted",
                "    link.dropped_bytes += world.packets[row].size_bytes\n",
                "",
            ),
            (
                "a link that is down takes any number of packets",
                "    link.queued_bytes += packet.size_bytes\n",
                "",
            ),
        ],
    ),
    *faults(
        "sim/engine/links/faults.py",
        LAW,
        [
            ("two rules of a fate may strike one packet", "        decided |= 1 << rule.fate\n", ""),
            (
                "all fates have the draws of loss",
                "mix(packet.key, hop, purposes.FATE + rule.fate)",
                "mix(packet.key, hop)",
            ),
            (
                "a flip changes all copies of a result",
                "    if world.payload_uses[packet.payload] > 1:\n",
                "    if world.payload_uses[packet.payload] > 1000:\n",
            ),
            (
                "a copy has the fate of its original",
                "packet.key = mix(world.packets[row].key, purposes.COPY, packet.hop - 1)",
                "packet.key = world.packets[row].key",
            ),
            (
                "a chain that finds itself bad goes good with its other rate",
                "threshold = ALWAYS - rule.to_good",
                "threshold = ALWAYS - rule.to_bad",
            ),
            (
                "every link has the chain of the first",
                "draw = mix(world.clock[0].seed, purposes.BURST_CHAIN, number, index, chain.packets)",
                "draw = mix(world.clock[0].seed, purposes.BURST_CHAIN, number, 0, chain.packets)",
            ),
        ],
    ),
    *faults(
        "sim/engine/setup/control.py",
        LAW,
        [
            (
                "a reboot clears half of a job's slots",
                "first + 2 * int(job.window) * int(job.unit_packets)",
                "first + int(job.window) * int(job.unit_packets)",
            ),
            (
                "a cut loses what waits as well",
                "        lose_until(world, index, first)\n",
                "        lose_until(world, index, -1)\n",
            ),
            ("bytes lost in a cut are not counted", "        row.lost_bytes += size_bytes\n", ""),
        ],
    ),
    *faults(
        "sim/engine/links/faults.py",
        ["tests/sim/engine/transports/test_words_kept.py"],
        [
            (
                "a late duplicate reads its sender's buffer",
                "    if world.rules[number].delay_ps > 0:\n        detach_words(world, row)\n",
                "    if world.rules[number].delay_ps > 0:\n",
            ),
        ],
    ),
    *faults(
        "sim/engine/observe/inspect.py",
        ["tests/sim/engine/links/test_links.py"],
        [
            (
                "the most bytes that waited are eight times as many",
                "int(link.rate_bps) // PS_BYTES",
                "int(link.rate_bps) // (PS_BYTES // 8)",
            ),
        ],
    ),
    *faults(
        "sim/engine/transports/flow.py",
        ["tests/sim/engine/links/test_fates.py", "tests/sim/collectives/test_host_times.py"],
        [
            (
                "retransmissions of ended flows are forgotten",
                "counts[0] += flow.retransmitted_packets",
                "counts[0] += 0",
            ),
        ],
    ),
    *faults(
        "sim/engine/links/faults.py",
        ["tests/sim/engine/links/test_fates.py::test_a_fault_strikes_from_its_beginning_up_to_its_end"],
        [
            (
                "a fault's end is inclusive",
                "if not rule.from_ps <= now_ps < rule.until_ps:",
                "if not rule.from_ps <= now_ps <= rule.until_ps:",
            ),
        ],
    ),
    *faults(
        "sim/engine/setup/control.py",
        [f"{KEPT}[reboot_between_two_parts]"],
        [
            (
                "a reboot leaves the numbers of results",
                '        world.windows["switch_psn"][row] = 0\n',
                "",
            ),
        ],
    ),
]
