"""Faults of the packet engine, without ATP."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

LAW = ["tests/sim/engine/test_equivalence.py"]
HEAP = ["tests/sim/engine/tables/test_tables.py"]
KEPT = "tests/sim/engine/test_equivalence.py::test_kept_plans"

MUTANTS: list[Mutant] = [
    *faults(
        "sim/engine/transports/stream.py",
        LAW,
        [
            (
                "a stream's first window is one unit short",
                "for unit in range(min(stream.window, stream.units_count)):",
                "for unit in range(min(stream.window, stream.units_count) - 1 or 1):",
            ),
            ("a stream keeps the timeout of the one before", "    stream.timeout_ps = job.timeout_ps\n", ""),
            (
                "later units wait for the first timeout",
                "    if following < stream.units_count:\n        send_next(world, row, following, stream.timeout_ps)",
                "    if following < stream.units_count:\n        send_next(world, row, following, world.jobs[stream.job].first_timeout_ps)",
            ),
            (
                "a timer is set to what is later too",
                "if deadline_ps >= stream.armed_ps:",
                "if deadline_ps > stream.armed_ps:",
            ),
            (
                "a message's last packet lacks its extra bytes",
                "packet.size_bytes += job.last_bytes",
                "packet.size_bytes += 0",
            ),
            (
                "the exponent goes with a unit's first packet",
                "        if part == job.unit_packets - 1:\n            packet.size_bytes += job.last_bytes\n            if window.unit",
                "        if part == job.unit_packets - 1:\n            packet.size_bytes += job.last_bytes\n        if part == 0:\n            if window.unit",
            ),
            (
                "a packet's key has another purpose",
                "packet_key(world, index, purposes.WORKER_PACKET, stream.worker)",
                "packet_key(world, index, purposes.RESULT, stream.worker)",
            ),
            (
                "copies of a packet share its fate",
                "        packet.part,\n        packet.attempt,\n",
                "        packet.part,\n        0,\n",
            ),
            ("PSNs start over with a unit", "        window.psn += 1\n", "        window.psn = part + 1\n"),
            (
                "retransmissions are counted by unit",
                "        if window.attempt > 0:\n            stream.retransmitted_packets += 1",
                "        if window.attempt > 0 and part == 0:\n            stream.retransmitted_packets += 1",
            ),
            (
                "a stale result is not counted",
                "        stream.stale_results += 1\n    elif advance_unit",
                "        stream.stale_results += 0\n    elif advance_unit",
            ),
            (
                "a result of an earlier stream is taken",
                "if not stream.is_open or packet.serial != stream.serial or packet.unit != window.unit:",
                "if not stream.is_open or packet.unit != window.unit:",
            ),
            (
                "a gap in a result goes unnoticed",
                "elif packet.transmission != window.expected_psn or packet.part",
                "elif packet.part",
            ),
            (
                "a result that goes on in another attempt is taken",
                "packet.transmission != window.expected_psn or packet.part != window.parts",
                "packet.transmission != window.expected_psn",
            ),
            (
                "after a gap a unit goes on",
                "        window.parts = 0\n        window.expected_psn = -1\n        return False",
                "        window.expected_psn = packet.transmission + 1\n        return False",
            ),
            (
                "a result of the unit that is sent next is not early",
                "return bool(stream.is_open and 0 <= outstanding < packet.unit)",
                "return bool(stream.is_open and 0 <= outstanding < packet.unit - stream.window)",
            ),
            ("versions do not alternate", "else 1 - window.version", "else window.version"),
            ("turns go up to one", "window.version + 1 if world.jobs", "1 - window.version if world.jobs"),
            (
                "an ended stream's timer still fires",
                "    stream.armed_order = -1\n    done = world.done",
                "    done = world.done",
            ),
            (
                "jitter has another purpose",
                "mix(seed, purposes.JITTER, stream.job",
                "mix(seed, purposes.JITTER - 1, stream.job",
            ),
            (
                "jitter is the same for all workers",
                "stream.job, stream.worker, stream.serial, unit",
                "stream.job, 0, stream.serial, unit",
            ),
            (
                "a deadline that is just due waits",
                "if window.deadline_ps <= now_ps:",
                "if window.deadline_ps < now_ps:",
            ),
            (
                "the timeout doubles one timeout late",
                "and stream.timeouts >= stream.timeouts_threshold:",
                "and stream.timeouts > stream.timeouts_threshold:",
            ),
            (
                "the timeout has no bound",
                "min(2 * stream.timeout_ps, job.timeout_max_ps)",
                "2 * stream.timeout_ps",
            ),
            (
                "the timer waits for the last slot's deadline",
                "next_ps = min(next_ps, window.deadline_ps)",
                "next_ps = window.deadline_ps",
            ),
        ],
    ),
    *faults(
        "sim/engine/switches/aggregate.py",
        LAW,
        [
            ("discarded packets are not counted", "        point.discarded += 1\n", ""),
            (
                "the front end passes what follows a gap",
                "if packet.part == 0 or packet.transmission == window.switch_expected_psn:",
                "if packet.part == 0 or packet.transmission >= window.switch_expected_psn >= 0:",
            ),
            (
                "answers go to all children",
                "        point.answers += 1\n        return packet.child",
                "        point.answers += 1\n        return ALL_CHILDREN",
            ),
            (
                "an inner switch answers before the root has",
                "if point.parent < 0 or world.registers.slots[row].is_answered:",
                "if point.parent < 0 or world.registers.slots[row].is_answered >= 0:",
            ),
            ("late packets count as answers", "        point.late += 1\n", "        point.answers += 1\n"),
            (
                "parts of a unit share a slot",
                "packet.slot * job.unit_packets + packet.part",
                "packet.slot * job.unit_packets",
            ),
            (
                "TABLE_ADD's overflows are not counted",
                "    point.overflowed_words += arithmetic.add_lanes(values, lifted, bits, job.overflow)",
                "    arithmetic.add_lanes(values, lifted, bits, job.overflow)",
            ),
            (
                "narrow lanes are added as words",
                "        elif arithmetic.has_narrow_lanes(packet.merge):\n",
                "        elif arithmetic.has_narrow_lanes(packet.merge) and packet.merge < 0:\n",
            ),
            (
                "overflows of narrow lanes are not counted",
                "    point.overflowed_words += arithmetic.add_lanes(values, words, bits, overflow)",
                "    arithmetic.add_lanes(values, words, bits, overflow)",
            ),
            (
                "a slot forgets how many workers it held",
                "slot.workers += packet.workers",
                "slot.workers = packet.workers",
            ),
            (
                "SIGN draws the same at every point",
                "sender = 65536 * point.index + packet.child",
                "sender = packet.child",
            ),
            (
                "lifted words overwrite what they should add to",
                "    if action == OVERWRITE:\n        lift_words",
                "    if action != OVERWRITE:\n        lift_words",
            ),
            (
                "a stale result of the parent is passed on",
                "        if slot.is_answered:\n",
                "        if slot.is_answered < 0:\n",
            ),
            (
                "an inner switch repeats a result with its own exponent",
                "        slot.exponent = packet.exponent\n",
                "",
            ),
            (
                "an inner switch keeps its partial instead of the result",
                "        copy_words(world.registers.values[row], words)\n    point.installed",
                "    point.installed",
            ),
            ("a result from the parent leaves the slot unanswered", "        slot.is_answered = 1\n", ""),
        ],
    ),
    *faults(
        "sim/engine/switches/egress.py",
        LAW,
        [
            (
                "a result lacks its exponent",
                "    result.exponent = slot.exponent\n",
                "    result.exponent = 0\n",
            ),
            (
                "results of TABLE_ADD weigh as their packets",
                "        result.size_bytes += 4 * (job.lanes - 1) * job.elements",
                "        result.size_bytes += 0",
            ),
            (
                "the loopback's key is the result's",
                "purpose = purposes.TIMER_LOOPBACK if packet.flags else purposes.LOOPBACK",
                "purpose = purposes.TIMER_LOOPBACK if packet.flags else purposes.RESULT",
            ),
            (
                "the last child gets no result",
                "        first, count = point.first_receiver, point.receivers_count",
                "        first, count = point.first_receiver, max(1, point.receivers_count - 1)",
            ),
            (
                "results to points have the key of partials",
                "send_to_point(world.clock[0].at, index, node, receiver.point, purposes.DOWN_RESULT)",
                "send_to_point(world.clock[0].at, index, node, receiver.point, purposes.DOWN_RESULT - 1)",
            ),
            ("copies of a result share a PSN", "    world.windows[row, packet.slot].switch_psn += 1\n", ""),
            (
                "what a timer sends has the key of a result",
                "purpose = purposes.TIMER_RESULT if packet.flags else purposes.RESULT",
                "purpose = purposes.RESULT",
            ),
            (
                "a result's key forgets what caused it",
                "packet_key(world, copy, purpose, stream.worker * 65536 + cause)",
                "packet_key(world, copy, purpose, stream.worker * 65536)",
            ),
            (
                "partials take the worker's route",
                "    result.route = lower.route",
                "    result.route = packet.route",
            ),
            (
                "a partial's exponent is lost",
                "    new.exponent = old.exponent\n    new.workers",
                "    new.exponent = 0\n    new.workers",
            ),
            ("a result's attempt is lost", "    new.attempt = old.attempt\n", "    new.attempt = 0\n"),
        ],
    ),
    *faults(
        "sim/engine/switches/slot_timer.py",
        LAW,
        [
            (
                "every merge starts a slot's timer anew",
                "    elif action == OVERWRITE:\n",
                "    elif action != 0:\n        if action != OVERWRITE:\n            slot.timer_order = clock.order\n            clock.order += 1\n",
            ),
            (
                "a slot's timer takes its order only where it is armed",
                "        slot.timer_order = clock.order\n        clock.order += 1\n",
                "        slot.timer_order = clock.order\n        clock.order += 0 if slot.is_emitted else 1\n",
            ),
            ("expired packets are not counted", "    world.points[packet.point].expired += 1\n", ""),
            ("a slot that timed out can complete later", "    slot.is_emitted = 1\n", ""),
            (
                "an expired packet gets the holders of the sum",
                "    reply.bits = 0\n",
                "    reply.bits = packet.bits\n",
            ),
        ],
    ),
    *faults(
        "sim/engine/tables/heap.py",
        HEAP,
        [
            (
                "ties are not broken by order going up",
                "is_before(heap[parent].time_ps, heap[parent].order, time_ps, order)",
                "is_before(heap[parent].time_ps, 0, time_ps, 0)",
            ),
            (
                "ties are not broken by order going down",
                "is_before(first.time_ps, first.order, second.time_ps, second.order)",
                "is_before(first.time_ps, 0, second.time_ps, 0)",
            ),
            ("the last children of a heap are not looked at", "if last - 3 < count:", "if last - 2 < count:"),
        ],
    ),
    *faults(
        "sim/engine/transports/flow.py",
        LAW,
        [
            (
                "what came before a gap in a flow was filled is not found again",
                "if world.flights[row, natural(place)].received != sequence + 1:",
                "if world.flights[row, natural(place)].received >= 0:",
            ),
            (
                "the search for a flow's next gap does not wrap around",
                "        if place == flow.window:\n            place = 0\n",
                "        if place == flow.window:\n            break\n",
            ),
            (
                "a flow's packet is new where its place was used before",
                "received != packet.unit + 1",
                "received == 0",
            ),
        ],
    ),
    *faults(
        "sim/engine/transports/payload.py",
        LAW,
        [
            (
                "a unit's words are those of its segment's first packet",
                "* job.unit_packets + packet.part) * job.elements\n    count",
                "* job.unit_packets) * job.elements\n    count",
            ),
            (
                "a scaled unit takes the exponent of the next",
                "bytes_at(stream.agreed, stream.blocks_count)[unit],",
                "bytes_at(stream.agreed, stream.blocks_count)[min(unit + 1, stream.blocks_count - 1)],",
            ),
            (
                "holders are written by the stream's unit",
                "[packet.unit - segment.first_unit] = packet.bits",
                "[packet.unit] = packet.bits",
            ),
        ],
    ),
    *faults(
        "sim/engine/transports/early_results.py",
        LAW,
        [
            (
                "the last kept result is lost when one before it is taken",
                "        stream.early_tail = before",
                "        stream.early_tail = -1",
            ),
        ],
    ),
    *faults(
        "sim/engine/loop/timers.py",
        LAW,
        [
            (
                "a pause does not hold up timers of streams",
                "    if clock.now_ps < away_until_ps:\n        stream.armed_ps",
                "    if clock.now_ps < 0 * away_until_ps:\n        stream.armed_ps",
            ),
            (
                "a timer that was put off takes no order",
                "    clock.heap_count += 1\n    clock.order += 1\n    return order",
                "    clock.heap_count += 1\n    return order",
            ),
        ],
    ),
    *faults(
        "sim/engine/loop/arrivals.py",
        LAW,
        [
            (
                "a link's delivered bytes are not counted",
                "    link.delivered_bytes += packet.size_bytes\n",
                "",
            ),
            (
                "a paused host still takes packets at the last instant",
                "if world.clock[0].now_ps >= away_until_ps:",
                "if world.clock[0].now_ps > away_until_ps:",
            ),
        ],
    ),
    *faults(
        "sim/engine/engine.py",
        LAW,
        [
            (
                "all engines have seed 1",
                "self.world = allocate.new_world(network, rules, seed)",
                "self.world = allocate.new_world(network, rules, 1)",
            ),
        ],
    ),
    *faults(
        "sim/engine/setup/jobs.py",
        LAW,
        [
            (
                "a job's second switch has the slots of the first",
                "        bases[switch] = total\n        total += size\n",
                "        bases[switch] = total\n        total += 0\n",
            ),
        ],
    ),
    *faults(
        "sim/engine/switches/aggregate.py",
        [f"{KEPT}[inner_switch_answers]"],
        [
            ("a result that is passed on is not counted", "    point.installed += 1\n", ""),
        ],
    ),
    *faults(
        "sim/engine/transports/early_results.py",
        [f"{KEPT}[late_worker_with_results_of_the_next_stream]"],
        [
            (
                "a kept result of any stream is taken",
                "if packet.serial == stream.serial and packet.unit == unit:",
                "if packet.unit == unit:",
            ),
        ],
    ),
    *faults(
        "sim/engine/engine.py",
        [f"{KEPT}[shorter_pause_in_a_longer_one]"],
        [
            (
                "a later pause does not win",
                "max(until_ps, int(self.world.hosts[host].away_until_ps))",
                "until_ps",
            ),
        ],
    ),
    *faults(
        "sim/engine/switches/aggregate.py",
        ["tests/sim/engine/test_lanes.py"],
        [
            (
                "a slot keeps its workers when it starts anew",
                "        slot.workers = 0\n        slot.members = np.uint32(0)\n",
                "        slot.members = np.uint32(0)\n",
            ),
            (
                "words merge into the old words of a slot that holds nobody",
                "        if slot.workers == 0:\n            copy_words(values, words)",
                "        if action == OVERWRITE:\n            copy_words(values, words)",
            ),
            (
                "codes merge into the old lanes of a slot that holds nobody",
                "action = OVERWRITE if slot.workers == 0 else MERGE",
                "action = action",
            ),
            ("who contributes is not kept", "slot.members |= packet.bits", "slot.members |= np.uint32(0)"),
        ],
    ),
    *faults(
        "sim/engine/switches/egress.py",
        ["tests/sim/engine/test_lanes.py"],
        [
            (
                "the result of nobody weighs as one with words",
                "wire_bytes(world, index, slot.workers != 0)",
                "wire_bytes(world, index, True)",
            ),
            (
                "narrow lanes that a header or a timer causes weigh as codes",
                "merge_of(packet.merge) == TABLE_ADD",
                "packet.merge == TABLE_ADD",
            ),
            (
                "a result weighs as the header that caused it",
                "if slot.workers == 0 or world.packets[cause].workers == 0:",
                "if slot.workers == 0:",
            ),
        ],
    ),
    *faults(
        "sim/engine/switches/egress.py",
        ["tests/sim/engine/test_equivalence.py"],
        [
            (
                "what a timer sends weighs as a middle packet",
                "        size_bytes += job.last_bytes\n",
                "        size_bytes += 0\n",
            ),
        ],
    ),
    *faults(
        "sim/engine/transports/payload.py",
        ["tests/sim/engine/test_lanes.py"],
        [
            (
                "an absent worker's packets weigh as others",
                "packet.size_bytes -= 4 * job.elements",
                "packet.size_bytes -= 0",
            ),
            (
                "the maximum of nobody is 0",
                "INT32_MIN if packet.merge == MAX else np.int32(0)",
                "np.int32(0)",
            ),
            ("results do not say how many they hold", "members[0] = workers", "members[0] = 0"),
        ],
    ),
]
