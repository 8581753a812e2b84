"""The scenario file as pydantic models: every key, its meaning, its default and its range.

Keys are written without units because their values carry one. The attributes hold the base unit: `rate` is
int bits per second, `delay` int picoseconds, `buffer` int bytes. Nothing beyond the plan sees these objects.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from sim.scenario.faults import Fault
from sim.scenario.fields import CodecOptions, Count, Name, Pair, Placement, Rate, Share, Size, Time
from sim.scenario.section import Section
from sim.units import RATE, SIZE, TIME

Frame = Literal["udp-256", "udp-1024", "roce-1024"]


class Links(Section):
    """What the links and switches of a generated topology have in common."""

    rate: Rate = RATE.parse("100Gbps")
    """Rate of the links between hosts and switches, in each direction."""
    delay: Time = TIME.parse("1us")
    """Propagation delay of every link."""
    buffer: Size = SIZE.parse("16MiB")
    """Buffer of every switch port; what does not fit is dropped."""
    switch: str = "tofino1"
    """Profile of the switches: what their hardware can do."""


class Star(Links):
    """All hosts on one switch."""

    kind: Literal["star"]
    hosts: Count
    """Number of hosts: h0, h1, …"""


class LeafSpine(Links):
    """Two tiers of switches; every leaf is linked to every spine."""

    kind: Literal["leaf_spine"]
    leaves: Count
    """Number of leaf switches."""
    spines: Count
    """Number of spine switches."""
    hosts_per_leaf: Count
    """Number of hosts on each leaf."""
    uplink_rate: Rate = Field(default_factory=lambda read: read.get("rate", 0))
    """Rate of the links between leaves and spines; by default that of the host links."""


class TopologyFile(Section):
    """A graph from a file."""

    kind: Literal["file"]
    path: str
    """Node-link JSON, relative to the scenario file."""


Topology = Annotated[Star | LeafSpine | TopologyFile, Field(discriminator="kind")]


class Workers(Section):
    """Training ranks and the hosts they run on; a bare number is the count."""

    count: Count
    """Number of workers."""
    placement: Placement = "pack"
    """pack fills racks in order, spread takes racks in turn; or the host names in rank order."""


class Training(Section):
    """Gradients of a PyTorch model that is really trained, one virtual worker per rank."""

    kind: Literal["training"]
    model: Literal["ncf", "mlp"]
    """ncf: neural collaborative filtering on MovieLens-100K; mlp: a small classifier of digits."""
    expand: Pair = (1, 1)
    """ncf: copies of the users and of the items; [147, 16] gives the size of MovieLens-20M."""
    batch: Count = 256
    """Samples per worker and step."""
    steps: Count = 1
    """Optimizer steps."""
    learning_rate: Annotated[float, Field(gt=0)] = 0.01
    """Step size of plain gradient descent."""
    bucket: Size = SIZE.parse("25MiB")
    """A bucket is sent when this much gradient is ready."""

    @field_validator("expand")
    @classmethod
    def _only_ncf_expands(cls, expand: tuple[int, int], info: ValidationInfo) -> tuple[int, int]:
        if info.data.get("model") == "mlp":
            raise ValueError("model mlp cannot be expanded\nremove expand, or use model ncf")
        return expand


class Synthetic(Section):
    """Random gradients of a given size and sparsity; nothing is trained."""

    kind: Literal["synthetic"]
    elements: Count
    """Elements of the gradient."""
    steps: Count = 1
    """Optimizer steps."""
    density: Share = 1.0
    """Share of non-zero elements at each worker."""
    pattern: Literal["iid", "rows", "columns", "blocks"] = "iid"
    """Which elements are zero together: none, whole rows, whole columns, or runs of a row's length."""
    row_elements: Count = 64
    """Elements of a row."""
    overlap: Share = 0.0
    """Share of a worker's non-zero positions that all workers have in common."""
    distribution: Literal["normal", "lognormal", "loguniform", "integer"] = "normal"
    """Distribution of the non-zero elements."""
    bucket: Size | None = None
    """A bucket is sent when this much gradient is ready; by default all of it at once."""


Workload = Annotated[Training | Synthetic, Field(discriminator="kind")]


class NoDevice(Section):
    """Compute takes no time."""

    kind: Literal["none"] = "none"


class FixedDevice(Section):
    """Compute takes the times given here."""

    kind: Literal["fixed"]
    forward: Time
    """Forward pass of one step."""
    backward: Time
    """Backward pass of one step."""
    memory_rate: Rate | None = None
    """Memory bandwidth that encoding and decoding are charged for; by default they take no time."""


class RooflineDevice(Section):
    """Compute takes as long as a known accelerator needs for the counted operations and bytes."""

    kind: Literal["roofline"]
    model: Literal["v100", "a100", "h100", "p100", "t4"]
    """Accelerator."""


Device = Annotated[NoDevice | FixedDevice | RooflineDevice, Field(discriminator="kind")]


class Ring(Section):
    """Ring all-reduce between the hosts: reduce-scatter, then all-gather."""

    kind: Literal["ring"]
    frame: Frame = "roce-1024"
    """Packet format: protocol and payload bytes."""
    window: Count = 512
    """Packets a worker may have outstanding."""
    timeout: Time | None = None
    """Wait for an acknowledgement before packets are sent again; by default 1ms, or twice the round trip of a
    full window where that is longer."""
    ack_every: Count = 16
    """Packets acknowledged at once."""


class InNetwork(Section):
    """Aggregation in a switch."""

    kind: Literal["in_network"]
    program: Literal["switchml"] = "switchml"
    """What the switch runs."""
    frame: Frame = "roce-1024"
    """Packet format: protocol and payload bytes."""
    slots: Count = 512
    """Packets a worker may have outstanding, one accumulator of the switch each."""
    message_packets: Count = Field(
        default_factory=lambda read: 4 if str(read.get("frame")).startswith("roce") else 1
    )
    """Packets per RDMA message: by default 4 with RoCE; 1 with UDP, which has no messages."""
    timeout: Time | None = None
    """Wait for a result before a message is sent again; by default 10ms, or twice the round trip of a full
    window where that is longer."""
    first_timeout: Time | None = None
    """Wait for the results of the first window of every exchange; by default the same."""
    timeout_max: Time = TIME.parse("100ms")
    """The timeout doubles after every 100 timeouts of a worker, up to this."""
    switch: str = "auto"
    """Name of the switch; auto takes the nearest to all workers that can run the program."""

    @field_validator("message_packets")
    @classmethod
    def _udp_has_no_messages(cls, message_packets: int, info: ValidationInfo) -> int:
        frame = str(info.data.get("frame"))
        if frame.startswith("udp") and message_packets != 1:
            raise ValueError(
                f"must be 1 with frame {frame}, found {message_packets}\nonly RoCE has longer messages"
            )
        return message_packets


Collective = Annotated[Ring | InNetwork, Field(discriminator="kind")]


class Published(Section):
    """A published throughput, shown beside the simulated one and never mixed into it."""

    label: str
    """What it is called in the figure."""
    elements_per_s: Annotated[float, Field(gt=0)]
    """Dense gradient elements aggregated per second."""
    source: str
    """Where the number comes from."""


class Settings(Section):
    """What a scenario compares: the sections every variant has, and may change."""

    topology: Topology
    """Hosts, switches and links."""
    workers: Workers
    """Training ranks and where they run."""
    workload: Workload
    """Where gradients come from."""
    device: Device = NoDevice()
    """How long compute takes."""
    codec: CodecOptions
    """How gradients are encoded."""
    collective: Collective
    """How workers' messages are brought together."""
    faults: tuple[Fault, ...] = ()
    """What goes wrong."""
    published: tuple[Published, ...] = ()
    """Published results to compare with."""


class Variant(Settings):
    """One alternative, complete."""

    name: Name
    """Name in tables and figures: lower-case letters, digits and '-'."""


class Header(Section):
    """What all variants share."""

    @field_validator("name")
    @classmethod
    def _latest_is_taken(cls, name: str) -> str:
        if name == "latest":
            raise ValueError("the name latest is taken\nit points to the latest run: use another name")
        return name

    name: Name
    """Name of the scenario and of the folder of its runs: lower-case letters, digits and '-'; not latest."""
    description: str = ""
    """What the scenario shows, in a sentence or two."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    """Decides everything random; same seed, same results."""


def union_members(annotation: Any) -> tuple[Any, ...]:
    """The alternatives of a union, or the annotation alone."""
    return tuple(getattr(annotation, "__args__", (annotation,)))
