"""Faults of routes, policies and what flows do about reordering."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

TABLES = ["tests/topologies/routing/test_tables.py"]
POLICIES = ["tests/topologies/routing/test_policies.py"]
ENGINE = ["tests/sim/engine/test_routing.py"]

MUTANTS: list[Mutant] = [
    *faults(
        "topologies/routing/shortest.py",
        TABLES,
        [
            (
                "targets that were reached before are reached again",
                "        new &= unseen\n",
                "        new &= ~frontier\n",
            ),
            (
                "links between groups cost what others do",
                "beyond[ports] = reached[price - 1][far_end[ports]]",
                "beyond[ports] = reached[0][far_end[ports]]",
            ),
            (
                "sets of more than 16 ports lack some",
                "packed = np.packbits(flags, axis=0)",
                "packed = np.packbits(flags[:8], axis=0)",
            ),
        ],
    ),
    *faults(
        "topologies/routing/tables.py",
        TABLES,
        [
            (
                "sets of ports begin one too early",
                "np.stack([ends - counts, counts], axis=1)",
                "np.stack([np.maximum(ends - counts - 1, 0), counts], axis=1)",
            ),
            (
                "routes that are too large for the memory are made",
                "if room_bytes is not None and needed > room_bytes:",
                "if room_bytes is not None and needed > 2 * room_bytes:",
            ),
        ],
    ),
    *faults(
        "topologies/routing/paths.py",
        POLICIES,
        [
            (
                "packets choose at the first node, and follow it at all others",
                "way_of_plain(key, node, ways)",
                "way_of_plain(key, source, ways)",
            ),
            (
                "streams of workers take detours",
                "return bool(network.is_host[source] and network.is_host[target])",
                "return bool(network.is_host[source])",
            ),
            ("shares do not divide among ways", "found[link] = share / len(links)", "found[link] = share"),
        ],
    ),
    *faults(
        "topologies/routing/dimension_order.py",
        POLICIES,
        [
            ("ties on a ring always go up", "((2 * hops == size) & is_even)", "(2 * hops == size)"),
            (
                "the last dimension goes first",
                "first = (ahead != 0).argmax(axis=1)",
                "first = dimensions.size - 1 - (ahead != 0)[:, ::-1].argmax(axis=1)",
            ),
        ],
    ),
    *faults(
        "topologies/routing/valiant.py",
        POLICIES,
        [
            ("a detour may be over the target's own group", "    group += group >= second\n", ""),
            (
                "a group is entered anywhere",
                "distance == distance.min(axis=1, keepdims=True)",
                "distance >= 0",
            ),
        ],
    ),
    *faults(
        "sim/engine/transports/flow.py",
        ENGINE,
        [
            ("a flow tolerates nothing", "packet.transmission - flow.tolerance)", "packet.transmission)"),
            (
                "a flow never tolerates more",
                "flow.tolerance + flow.tolerance_step",
                "flow.tolerance",
            ),
            (
                "what is sent in vain is not counted",
                "flow.spurious_retransmissions += packet.copy == 0",
                "flow.spurious_retransmissions += 0",
            ),
        ],
    ),
    *faults(
        "sim/engine/links/steer.py",
        ENGINE,
        [
            (
                "copies of a packet are sprayed by when they were sent",
                "if packet.kind == FLOW_ACK else packet.attempt",
                "if packet.kind == FLOW_ACK else packet.transmission + 1",
            ),
            (
                "a detour depends on no flow",
                "mix(purposes.VALIANT, source, target, route)",
                "mix(purposes.VALIANT, source, target, 0)",
            ),
        ],
    ),
]
