"""All collectives by kind. A new collective is a file or folder and an entry here."""

from __future__ import annotations

from netfold.sim.collectives.in_network.spec import IN_NETWORK
from netfold.sim.collectives.ring.spec import RING
from netfold.sim.collectives.spec import CollectiveSpec

COLLECTIVES: dict[str, CollectiveSpec] = {spec.kind: spec for spec in (RING, IN_NETWORK)}
