"""Diagnosis of host-to-host messages that are not delivered, and helpers shared by all diagnoses."""

from __future__ import annotations

from netfold.sim.diagnosis.links import why_undelivered
from netfold.sim.diagnosis.report import CRASH_ADVICE, Cause, StuckMessage
from netfold.sim.diagnosis.snapshot import CRASHED, Snapshot, WaitingFlow
from netfold.topologies.network import path


def stuck_message(snapshot: Snapshot, flow: WaitingFlow) -> StuckMessage:
    """A row for a message, with its likely cause."""
    nodes = snapshot.network.nodes
    there = path(snapshot.network, flow.source, flow.target, flow.route)
    back = path(snapshot.network, flow.target, flow.source, flow.ack_route)
    cause = next(
        (
            Cause(f"{nodes[node]} has crashed", CRASH_ADVICE)
            for node in (flow.source, flow.target)
            if has_crashed(snapshot, node)
        ),
        None,
    )
    cause = cause or why_undelivered(snapshot.network, snapshot.outcomes, there + back, flow.packet_bytes)
    cause = cause or unknown_cause(f"from {nodes[flow.source]} to {nodes[flow.target]} and back")
    age_ps = snapshot.time_ps - flow.opened_ps
    return StuckMessage(
        snapshot.names[flow.owner], nodes[flow.source], nodes[flow.target], age_ps, cause, flow.what
    )


def has_crashed(snapshot: Snapshot, node: int) -> bool:
    """Whether a fault has stopped a host."""
    return any(event.node == node and event.what == CRASHED for event in snapshot.node_events)


def unknown_cause(way: str) -> Cause:
    """The cause where no evidence points to one."""
    return Cause(
        f"unknown: no link on the path {way} drops or loses packets",
        "fewer `faults`, to find the one that causes it",
        is_unknown=True,
    )
