"""The `hosts` section of a scenario: a profile's name, or a profile and what differs from it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

import netfold.sim.hosts.profiles  # noqa: F401  # which registers those there are
from netfold.sim.hosts.profile import NONE, HostProfile, host_profiles
from netfold.sim.keys.fields import Count, Time
from netfold.sim.keys.section import Section

_KIND = "Profile that all other keys have their values from. " + " ".join(
    f"{name}: {one.summary}." for name, one in host_profiles().items()
)
if TYPE_CHECKING:
    HostKind = str
else:
    HostKind = Literal[tuple(host_profiles())]


class HostsSection(Section):
    """What hosts take for packets; a name alone is the `kind`. With n cores, a packet of B bytes on the wire
    occupies its host for (per_packet + B · per_byte) / n on its way out, and again on its way in; packets
    wait for each other. Where a network card does that (`rdma`), cores share `message` alone. Hosts without a
    worker, such as a job's servers, have what the variant says, with several jobs what the first one does.
    """

    kind: Annotated[HostKind, Field(description=_KIND)] = NONE.name
    cores: Count | None = None
    """Processor cores that work on packets."""
    per_packet_send: Time | None = None
    """Time of one core, or of the card, for a packet that is sent."""
    per_packet_receive: Time | None = None
    """Time of one core, or of the card, for a packet that is received."""
    per_byte_send: Time | None = None
    """More for each byte of it on the wire."""
    per_byte_receive: Time | None = None
    """More for each byte of it on the wire."""
    message: Time | None = None
    """More for the first packet of a message that is sent: a unit for a switch, or a message to a host."""
    latency_send: Time | None = None
    """How long a packet takes to leave besides, without occupying its host."""
    latency_receive: Time | None = None
    """How long a packet takes to come in besides, without occupying its host."""

    def profile(self) -> HostProfile:
        """The profile that it describes."""
        base = host_profiles()[self.kind]
        given = self.model_dump(exclude={"kind", "cores"}, exclude_none=True, mode="python")
        changed = {f"{key}_ps": getattr(self, key) for key in given}
        cores = base.cores if self.cores is None else self.cores
        return replace(base, cores=cores, **changed)
