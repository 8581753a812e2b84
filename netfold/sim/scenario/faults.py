"""The faults of a scenario file: what goes wrong, where, when, and how much.

Order matters: of the packet faults of one kind, the first that matches a link at a given time applies there,
so an earlier `rate: 0%` exempts links. Patterns, switches and workers are looked up by `sim.resolve.faults`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from netfold.sim.keys.fields import Name, Rate, Share, Time
from netfold.sim.keys.section import Section
from netfold.units import TIME, format_fraction

Links = Annotated[tuple[str, ...], Field(min_length=1)]
Duration = Annotated[Time, Field(gt=0)]
Transition = Annotated[Share, Field(gt=0)]
FACTOR_MAX = 10_000  # of one host, with all its faults
WorkerIndex = Annotated[int, Field(ge=0)]


class WithRate(Section):
    """Affects each packet independently."""

    rate: Share
    """Probability that the fault affects a packet on one link."""


class PacketFault(Section):
    """Affects packets as they are put on links."""

    links: Links = ("*",)
    """Which links, one direction each, as patterns over names such as h0->s0."""
    begin: Time = Field(0, alias="from")
    """When the fault begins."""
    until: Time | None = None
    """When the fault ends; by default it lasts to the end of the run."""

    @field_validator("until")
    @classmethod
    def _ends_after_it_begins(cls, until: int | None, info: ValidationInfo) -> int | None:
        begin = info.data.get("begin", 0)
        if until is not None and until <= begin:
            raise ValueError(
                f"{TIME.format(until)} is not after from, {TIME.format(begin)}\n"
                f"use a time after {TIME.format(begin)}, or remove until: the fault then lasts to the end"
            )
        return until


class RandomPacketFault(PacketFault, WithRate):
    """Affects packets at random as they are put on links."""


class Loss(RandomPacketFault):
    """Packets that are lost on the wire."""

    kind: Literal["loss"]


class GilbertElliott(Section):
    """A two-state Markov chain for each link, with one transition per packet."""

    good_to_bad: Transition
    """Probability that a link changes from good to bad before a packet (p)."""
    bad_to_good: Transition
    """Probability that a link changes from bad to good before a packet (r); a bad period lasts 1/r packets on
    average."""
    loss_bad: Share = 1.0
    """Probability that a packet is lost while the link is bad (1 - h)."""
    loss_good: Share = 0.0
    """Probability that a packet is lost while the link is good (1 - k)."""

    @field_validator("loss_good")
    @classmethod
    def _good_is_better(cls, loss_good: float, info: ValidationInfo) -> float:
        loss_bad = info.data.get("loss_bad", 1.0)
        if loss_good > loss_bad:
            raise ValueError(
                f"{format_fraction(loss_good)} is more than loss_bad, {format_fraction(loss_bad)}\n"
                "use a smaller value, or swap the two states"
            )
        return loss_good


class BurstLoss(PacketFault, GilbertElliott):
    """Packets that are lost in bursts (Gilbert-Elliott model): each link alternates between a good and a bad
    state. The share of packets in the bad state is p / (p + r), from the first packet on."""

    kind: Literal["burst_loss"]


class Corruption(RandomPacketFault):
    """Packets in which bits flip on the wire."""

    kind: Literal["corruption"]
    detected: bool = True
    """true: the frame check sequence detects the error and the packet is discarded; false: one bit of a word
    is wrong and nothing detects it. Packets of messages between hosts, such as a ring's, are always
    discarded."""


class Duplicate(RandomPacketFault):
    """Packets that arrive twice."""

    kind: Literal["duplicate"]
    delay: Time = 0
    """Extra delay of the copy; without it the copy arrives right after the packet."""


class Reorder(RandomPacketFault):
    """Packets that arrive late, after packets sent behind them."""

    kind: Literal["reorder"]
    delay: Duration
    """Extra delay of an affected packet."""


class LinkFault(Section):
    """Changes links for some time."""

    links: Links = ("*",)
    """Which links, one direction each, as patterns over names such as h0->s0."""
    at: Time
    """When the fault begins."""
    duration: Duration | None = Field(None, alias="for")
    """How long it lasts; by default to the end of the run."""


class LinkDown(LinkFault):
    """Links that carry nothing: packets on the wire are lost, later packets wait in the buffer until it is
    full."""

    kind: Literal["link_down"]


class LinkRate(LinkFault):
    """Links that become slower, for all packets not yet sent; where such faults overlap, the one that began
    last applies."""

    kind: Literal["link_rate"]
    rate: Rate
    """Rate during the fault, at most the link's rate in the topology."""


class SwitchReboot(Section):
    """A switch that loses its registers, its tables, or both."""

    kind: Literal["switch_reboot"]
    switch: str
    """Name of the switch."""
    at: Time
    """When it happens."""
    clears: Literal["registers", "tables", "both"] = "both"
    """registers: all partial sums are lost, and the switch continues at once; tables: it neither forwards nor
    aggregates, as if all its ports were down, until the controller has reinstalled them."""
    duration: Time = Field(0, alias="for")
    """How long the controller takes to reinstall the tables."""

    @field_validator("duration")
    @classmethod
    def _registers_need_no_controller(cls, duration: int, info: ValidationInfo) -> int:
        if duration and info.data.get("clears") == "registers":
            raise ValueError(
                "cleared registers are usable at once\nremove for, or use clears: tables or clears: both"
            )
        return duration


class WorkerFault(Section):
    """Affects a worker and its host."""

    worker: WorkerIndex
    """Rank of the worker: 0, 1, …"""
    job: Name | None = None
    """Name of its job; by default the first."""


class WorkerCrash(WorkerFault):
    """A worker that stops for good: its host ignores packets that arrive and sends nothing."""

    kind: Literal["worker_crash"]
    at: Time
    """When it happens."""


class WorkerPause(WorkerFault):
    """A worker that pauses: it computes nothing, and packets that arrive wait."""

    kind: Literal["worker_pause"]
    at: Time
    """When the pause begins."""
    duration: Duration = Field(alias="for")
    """How long it lasts."""


class StartSkew(WorkerFault):
    """A worker that starts its first step late."""

    kind: Literal["start_skew"]
    delay: Duration
    """How long after its job it starts."""


class SlowHost(WorkerFault):
    """A worker whose computing, encoding and decoding take longer; the factors of several such faults of one
    worker multiply."""

    kind: Literal["slow_host"]
    factor: Annotated[float, Field(gt=1, le=FACTOR_MAX)]
    """How many times longer, up to 10000."""


Fault = Annotated[
    Loss
    | BurstLoss
    | Corruption
    | Duplicate
    | Reorder
    | LinkDown
    | LinkRate
    | SwitchReboot
    | WorkerCrash
    | WorkerPause
    | StartSkew
    | SlowHost,
    Field(discriminator="kind"),
]
