"""Why a message from host to host is not delivered, and helpers that all diagnoses share."""

from __future__ import annotations

from netfold.sim.diagnosis.links import trouble
from netfold.sim.diagnosis.report import CRASH_ADVICE, Cause, StuckMessage
from netfold.sim.diagnosis.snapshot import CRASHED, Scene, WaitingFlow
from netfold.topologies.routing import path


def stuck_message(scene: Scene, flow: WaitingFlow) -> StuckMessage:
    """A row for a message, with its likely cause."""
    nodes = scene.network.nodes
    there = path(scene.network, flow.source, flow.target, flow.route)
    back = path(scene.network, flow.target, flow.source, flow.route)
    cause = next(
        (
            Cause(f"{nodes[node]} has crashed", CRASH_ADVICE)
            for node in (flow.source, flow.target)
            if has_crashed(scene, node)
        ),
        None,
    )
    cause = cause or trouble(scene.network, scene.fates, there + back, flow.packet_bytes)
    cause = cause or unknown(f"from {nodes[flow.source]} to {nodes[flow.target]} and back")
    age_ps = scene.time_ps - flow.opened_ps
    return StuckMessage(scene.names[flow.owner], nodes[flow.source], nodes[flow.target], age_ps, cause)


def has_crashed(scene: Scene, node: int) -> bool:
    """Whether a fault has stopped a host."""
    return any(note.node == node and note.what == CRASHED for note in scene.notes)


def unknown(way: str) -> Cause:
    """The cause where nothing points to one."""
    return Cause(
        f"unknown: no link on the path {way} drops or loses packets",
        "fewer `faults`, to find the one that causes it",
        is_unknown=True,
    )
