"""The plan of a job with parameter servers."""

from __future__ import annotations

from dataclasses import dataclass

from netfold.sim.collectives.between_hosts import ChunkedPlan


@dataclass(frozen=True, kw_only=True)
class ServerPlan(ChunkedPlan):
    """Workers push to servers and pull from them."""

    servers: tuple[int, ...]  # nodes
    owners: tuple[int, ...] = ()  # the worker that each server runs beside; empty: on hosts of their own
