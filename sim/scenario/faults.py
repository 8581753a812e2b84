"""Faults as a scenario writes them: what goes wrong, where, when, and how much.

Their order matters: of each kind of fault on packets, the first that names a link at a time counts there, so
an earlier `rate: 0%` exempts links. Patterns, switches and workers are looked up by `sim.resolve.faults`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from netfold.sim.keys.fields import Name, Rate, Share, Time
from netfold.sim.keys.section import Section
from netfold.sim.units import TIME, format_fraction

Links = Annotated[tuple[str, ...], Field(min_length=1)]
Duration = Annotated[Time, Field(gt=0)]
Transition = Annotated[Share, Field(gt=0)]
FACTOR_MAX = 10_000  # of one host; a slower one might as well have crashed
WorkerIndex = Annotated[int, Field(ge=0)]


class WithRate(Section):
    """Strikes each packet by itself."""

    rate: Share
    """Probability that a packet is struck on one link."""


class PacketFault(Section):
    """Strikes packets while they are put on links."""

    links: Links = ("*",)
    """Which links, one direction each, as patterns over names such as h0->s0."""
    begin: Time = Field(0, alias="from")
    """Packets are struck from this time on."""
    until: Time | None = None
    """Packets are struck before this time; by default to the end."""

    @field_validator("until")
    @classmethod
    def _ends_after_it_begins(cls, until: int | None, info: ValidationInfo) -> int | None:
        begin = info.data.get("begin", 0)
        if until is not None and until <= begin:
            raise ValueError(
                f"{TIME.format(until)} is not after from, {TIME.format(begin)}\n"
                f"use a time after {TIME.format(begin)}, or leave until out: to the end"
            )
        return until


class RandomPacketFault(PacketFault, WithRate):
    """Strikes packets at random while they are put on links."""


class Loss(RandomPacketFault):
    """Packets that vanish on the wire."""

    kind: Literal["loss"]


class GilbertElliott(Section):
    """A chain of two states that a link goes through, packet by packet."""

    good_to_bad: Transition
    """Probability that a packet finds the link bad where the one before found it good (p)."""
    bad_to_good: Transition
    """Probability that a packet finds it good where the one before found it bad (r); 1/r is how many packets
    long a bad stretch is, on average."""
    loss_bad: Share = 1.0
    """Probability that a packet that finds the link bad is lost (1 - h)."""
    loss_good: Share = 0.0
    """Probability that a packet that finds it good is lost (1 - k)."""

    @field_validator("loss_good")
    @classmethod
    def _good_is_better(cls, loss_good: float, info: ValidationInfo) -> float:
        loss_bad = info.data.get("loss_bad", 1.0)
        if loss_good > loss_bad:
            raise ValueError(
                f"{format_fraction(loss_good)} is more than loss_bad, {format_fraction(loss_bad)}\n"
                "use a smaller one, or exchange the two states"
            )
        return loss_good


class BurstLoss(PacketFault, GilbertElliott):
    """Packets that vanish in bursts (Gilbert-Elliott): each link is good or bad, and stays so for a while.
    Its share of bad packets is p / (p + r) from the first packet on."""

    kind: Literal["burst_loss"]


class Corruption(RandomPacketFault):
    """Packets in which bits flip on the wire."""

    kind: Literal["corruption"]
    detected: bool = True
    """true: the frame check sees it and the packet is discarded; false: a bit of a word is wrong, unseen.
    Packets of messages between hosts, as a ring's, are always discarded."""


class Duplicate(RandomPacketFault):
    """Packets that arrive twice."""

    kind: Literal["duplicate"]
    delay: Time = 0
    """How much later than right behind the packet its copy arrives."""


class Reorder(RandomPacketFault):
    """Packets that others overtake."""

    kind: Literal["reorder"]
    delay: Duration
    """How much later a struck packet arrives."""


class LinkFault(Section):
    """Changes links for a time."""

    links: Links = ("*",)
    """Which links, one direction each, as patterns over names such as h0->s0."""
    at: Time
    """When it begins."""
    duration: Duration | None = Field(None, alias="for")
    """How long it lasts; by default to the end."""


class LinkDown(LinkFault):
    """Links that carry nothing: what is on the wire is lost, the rest waits, as far as the buffer goes."""

    kind: Literal["link_down"]


class LinkRate(LinkFault):
    """Links that become slower, for all that has not left yet; where such faults overlap, the one that began
    last counts."""

    kind: Literal["link_rate"]
    rate: Rate
    """The rate meanwhile, at most that of the topology."""


class SwitchReboot(Section):
    """A switch that forgets its registers, its tables, or both."""

    kind: Literal["switch_reboot"]
    switch: str
    """Name of the switch."""
    at: Time
    """When it happens."""
    clears: Literal["registers", "tables", "both"] = "both"
    """registers: what it has added up so far is gone, and it goes on at once; tables: it neither forwards nor
    adds up anything, as if all its ports were down, until the controller has installed them again."""
    duration: Time = Field(0, alias="for")
    """How long the controller takes to install the tables again."""

    @field_validator("duration")
    @classmethod
    def _registers_need_no_controller(cls, duration: int, info: ValidationInfo) -> int:
        if duration and info.data.get("clears") == "registers":
            raise ValueError(
                "registers are usable at once after they are cleared\n"
                "remove for, or use clears: tables or clears: both"
            )
        return duration


class WorkerFault(Section):
    """Happens to a worker and its host."""

    worker: WorkerIndex
    """Rank of the worker: 0, 1, …"""
    job: Name | None = None
    """Name of its job; by default the first."""


class WorkerCrash(WorkerFault):
    """A worker that stops for ever: its host ignores what arrives and sends nothing any more."""

    kind: Literal["worker_crash"]
    at: Time
    """When it happens."""


class WorkerPause(WorkerFault):
    """A worker that stands still for a time: it computes nothing, and what arrives waits."""

    kind: Literal["worker_pause"]
    at: Time
    """When it begins."""
    duration: Duration = Field(alias="for")
    """How long it lasts."""


class StartSkew(WorkerFault):
    """A worker that begins its first step late."""

    kind: Literal["start_skew"]
    delay: Duration
    """How much later than its job."""


class SlowHost(WorkerFault):
    """A worker whose computing, encoding and decoding takes longer; several of one worker multiply."""

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
