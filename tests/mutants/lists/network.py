"""Faults of links that physics notices, of bursts by their statistics, and of frames."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

LINKS = ["tests/sim/engine/links/test_links.py"]
FATES = ["tests/sim/engine/links/test_fates.py"]

MUTANTS: list[Mutant] = [
    *faults(
        "sim/engine/links/link.py",
        LINKS,
        [
            (
                "an acknowledgement is not in the queue",
                "    link.free_at_ps = max(clock.now_ps, link.free_at_ps) + transmit_ps\n",
                "",
            ),
            (
                "while a link is down its buffer has no end",
                "if is_over and link.buffer_bytes > 0",
                "if False and link.buffer_bytes > 0",
            ),
            (
                "the longest queue leaves out the packet that joins",
                "link.backlog_ps_max = max(link.backlog_ps_max, backlog_ps)\n    if backlog_ps",
                "link.backlog_ps_max = max(link.backlog_ps_max, backlog_ps - transmit_ps)\n    if backlog_ps",
            ),
        ],
    ),
    *faults(
        "sim/engine/links/transmitter.py",
        LINKS,
        [
            (
                "a packet on the wire begins anew at another rate",
                "link.wire_work -= (now_ps - link.changed_ps) * link.rate_bps",
                "link.wire_work -= 0",
            ),
            (
                "what is left of a packet is rounded down",
                "end_ps += -(-link.wire_work // link.rate_bps)",
                "end_ps += link.wire_work // link.rate_bps",
            ),
            (
                "a link that gets faster is looked at when it would have been free",
                "    elif world.heap[place].time_ps <= packet.arrive_ps:",
                "    elif world.heap[place].time_ps >= 0:",
            ),
        ],
    ),
    *faults(
        "sim/engine/setup/control.py",
        LINKS,
        [
            (
                "an outage loses what waits",
                "waiting = {link: int(first_waiting(world, link)),",
                "waiting = {link: -1,",
            ),
            ("a rate changes for what comes alone", "    elif left_ps:\n", "    elif False:\n"),
        ],
    ),
    *faults(
        "sim/engine/links/faults.py",
        FATES,
        [
            (
                "what answers a copy shares the fate of what answers the packet",
                "packet.copy = np.uint32(packet.key) | np.uint32(1)",
                "packet.copy = np.uint32(0)",
            ),
            ("a bad stretch never ends", "threshold = ALWAYS - rule.to_good", "threshold = ALWAYS"),
            ("the first packet finds a link good", "threshold = rule.starts_bad", "threshold = rule.to_bad"),
        ],
    ),
    *faults(
        "sim/run/fault_driver.py",
        ["tests/sim/faults/test_driver.py"],
        [
            (
                "what waits in a switch that reboots is kept",
                "            self._engine.flush(link)\n",
                "            pass\n",
            ),
        ],
    ),
    *faults(
        "sim/plan/frames.py",
        ["tests/sim/resolve/test_frames.py"],
        [
            (
                "a frame's last packet weighs what its first does",
                "chosen.first, chosen.last, chosen.ack",
                "chosen.first, chosen.first, chosen.ack",
            ),
        ],
    ),
    *faults(
        "sim/diagnosis/links.py",
        ["tests/sim/diagnosis/test_slots.py"],
        [
            (
                "a link that is down is blamed though nothing waits for it",
                "if outcome.is_down and outcome.waiting + outcome.dropped:",
                "if outcome.is_down:",
            ),
            (
                "any link with packets on it is too slow",
                "if 2 * outcome.grown > outcome.sent:",
                "if outcome.waiting:",
            ),
        ],
    ),
    *faults(
        "sim/engine/links/link.py",
        [f"{LINKS[0]}::test_an_acknowledgement_waits_for_a_packet_that_begins_at_the_same_instant"],
        [
            (
                "a packet that begins now is passed by an acknowledgement",
                "transmit_time_ps(link, packet) > clock.now_ps:\n            return",
                "transmit_time_ps(link, packet) >= clock.now_ps:\n            return",
            ),
        ],
    ),
    *faults(
        "sim/engine/links/faults.py",
        [f"{FATES[0]}::test_a_link_goes_on_in_its_own_state_whatever_other_links_do"],
        [
            (
                "all links have one chain",
                "chain = world.chains[rule.chain, index]",
                "chain = world.chains[rule.chain, 0]",
            ),
        ],
    ),
    *faults(
        "sim/collectives/host_messages.py",
        ["tests/sim/collectives/test_between_hosts.py"],
        [
            (
                "chunks that disagree are not told",
                "first.present, is_mixed=is_mixed",
                "first.present, is_mixed=False",
            ),
        ],
    ),
]
