"""Faults of what hosts take for packets."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

ENGINE = ["tests/sim/engine/test_hosts.py"]
RUN = ["tests/sim/run/test_hosts.py"]
PROFILES = ["tests/sim/hosts/test_profiles.py"]

MUTANTS: list[Mutant] = [
    *faults(
        "sim/engine/links/link.py",
        ENGINE,
        [
            ("packets take no time in hosts", "// link.rate_bps) + link.packet_ps", "// link.rate_bps)"),
            (
                "every packet is a message",
                "if link.message_ps != 0 and starts_message(packet):",
                "if link.message_ps != 0:",
            ),
            ("every packet of a flow is a message", "return bool(packet.unit == 0)", "return True"),
            (
                "acknowledgements are messages",
                "return bool(packet.kind != FLOW_ACK and packet.part == 0)",
                "return bool(packet.part == 0 or packet.kind == FLOW_ACK)",
            ),
        ],
    ),
    *faults(
        "sim/engine/setup/allocate.py",
        ENGINE,
        [
            (
                "what arrives on the wire is delivered at once",
                "targets[[network.inside.send[host], down_link[host]]] =",
                "targets[network.inside.send[host]] =",
            ),
            (
                "packets of a flow pass their source by",
                "entry.source_link = world.nodes[flow.source].first_set",
                "entry.source_link = flow.source",
            ),
            (
                "acknowledgements pass their host by",
                "entry.target_link = world.nodes[flow.target].first_set",
                "entry.target_link = flow.target",
            ),
        ],
    ),
    *faults(
        "sim/engine/setup/jobs.py",
        ENGINE,
        [
            (
                "packets of a stream pass their host by",
                "stream.first_link = world.nodes[host].first_set",
                "stream.first_link = host",
            ),
        ],
    ),
    *faults(
        "sim/plan/idle_network.py",
        RUN,
        [
            (
                "closed forms do not know what hosts take",
                "    if not work_ps:\n        return rate_bps",
                "    if work_ps >= 0:\n        return rate_bps",
            ),
        ],
    ),
    *faults(
        "topologies/routing/paths.py",
        [*ENGINE, *RUN],
        [
            (
                "paths do not begin inside hosts",
                "return [*out, *_between(network, source, target, key), *into]",
                "return [*_between(network, source, target, key), *into]",
            ),
        ],
    ),
    *faults(
        "sim/hosts/profile.py",
        PROFILES,
        [
            (
                "cores share what the card does",
                "cores = 1 if self.is_offloaded else self.cores",
                "cores = self.cores",
            ),
            (
                "with many cores a packet alone is faster, too",
                "latency_ps + whole_ps - packet_ps)",
                "latency_ps)",
            ),
        ],
    ),
    *faults(
        "sim/resolve/variant.py",
        PROFILES,
        [
            (
                "all jobs have the hosts of the first",
                "found |= dict.fromkeys((rows[name] for name in names), sections.hosts.profile())",
                "found |= dict.fromkeys((rows[name] for name in names), self.variant.hosts.profile())",
            ),
        ],
    ),
    *faults(
        "sim/run/variant.py",
        RUN,
        [
            (
                "a host is called a loopback port",
                "Cause.HOST if network.is_inside(link) else Cause.LOOPBACK",
                "Cause.LOOPBACK",
            ),
        ],
    ),
]
