"""Switch profiles that a scenario brings: a known one and what differs, there or in a file of its own."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, ValidationError, WithJsonSchema

from netfold.sim.errors import Mistakes, shown
from netfold.sim.files.foreign import UnreadableError, read_text
from netfold.sim.keys.fields import Name
from netfold.sim.keys.section import Section
from netfold.sim.scenario.explain import explain
from netfold.sim.scenario.node import Node, parse
from netfold.sim.units import RATE, SIZE, TIME, Quantity
from netfold.switch.custom import profile_from
from netfold.switch.limits import Profile, ProfileError

SUFFIXES = (".yaml", ".yml")  # of files that hold a profile
PROFILE_BYTES_MAX = 2**20


def _limit(quantity: Quantity) -> tuple[BeforeValidator, PlainSerializer, WithJsonSchema]:
    """How a quantity is written that may be 0: there is none of it, or it has no limit."""
    schema = {"type": "string", "pattern": quantity.pattern, "examples": [quantity.example]}
    return (
        BeforeValidator(quantity.parse),
        PlainSerializer(quantity.format, return_type=str),
        WithJsonSchema(schema),
    )


Number = Annotated[int, Field(ge=0)]
Rate = Annotated[int, *_limit(RATE)]
Time = Annotated[int, *_limit(TIME)]
Size = Annotated[int, *_limit(SIZE)]
MergeName = Literal["add", "or", "max", "float_add", "sign", "table_add"]


class SwitchProfile(Section):
    """A known switch and what differs from it; what is left out is as there. 0 is none of it, or no limit."""

    name: Name
    """What `topology.switch`, or a switch of a topology's file, calls it."""
    like: str
    """Known profile that it starts from: plain, ideal, tofino1, tofino2, sharp, fpga or trio."""
    summary: str = ""
    """What it is."""
    merges: tuple[MergeName, ...] = Field(default_factory=tuple)
    """What it can do to words."""
    overflows: tuple[Literal["wrap", "saturate", "sticky"], ...] = Field(default_factory=tuple)
    """What can become of a sum that leaves int32; a switch that adds up has one at least, and the first is
    what it does by default."""
    has_timers: bool | None = None
    """Whether slots can answer when a time is over."""
    is_lossless: bool | None = None
    """Whether its network can wait for credits instead of dropping packets."""
    bitmap_bits: Number | None = None
    """Workers that one read of a slot's bitmap can tell apart."""
    port_rate: Rate | None = None
    """Rate of the fastest port."""
    pipes: Number | None = None
    """Pipelines side by side, through which packets of many words pass in a row."""
    pass_latency: Time | None = None
    """What one pass through the switch takes."""
    loopback_ports: Number | None = None
    """Ports for packets that need a further pass."""
    loopback_rate: Rate | None = None
    """Rate of one of them."""
    stages: Number | None = None
    """Stages of a pipeline."""
    salus_per_stage: Number | None = None
    """Stateful ALUs: each owns a register array, of which a pass can touch one entry."""
    salu_lanes: Number | None = None
    """32-bit words of an entry that one pass can change."""
    words_out: Number | None = None
    """Words of an entry that one pass can read out."""
    sram_blocks_per_stage: Number | None = None
    """SRAM blocks of a stage."""
    map_rams_per_stage: Number | None = None
    """Map RAMs of a stage; a register array needs as many as SRAM blocks."""
    block_rows: Number | None = None
    """Rows of an SRAM block."""
    block_row_bits: Number | None = None
    """Bits of a row."""
    spare_blocks: Number | None = None
    """SRAM blocks that every register array needs besides."""
    phv_bits: Number | None = None
    """Packet header vector: what a pass can see of a packet."""
    parser_limit: Size | None = None
    """Headers in front of the words."""
    memory: Size | None = None
    """Memory for slots, where there are no stages."""
    groups: Number | None = None
    """Jobs at a time."""
    operations: Number | None = None
    """Outstanding operations: packets that can be in the making, one slot each."""
    operation_payload: Size | None = None
    """Payload of one of them."""


_FIELDS = {re.sub("_(bps|ps|bytes)$", "", field.name): field.name for field in fields(Profile)}


def with_files(document: Node, folder: Path, mistakes: Mistakes) -> Node:
    """A scenario whose profiles are all mappings: for a path stands what its file says.

    Files that cannot be read, or are broken YAML, go to `mistakes` and are left out.
    """
    listed = document.children.get("profiles")
    if listed is None or not isinstance(listed.value, tuple):
        return document
    items = []
    for item in listed.value:
        if not isinstance(item.value, str):
            items.append(item)
            continue
        with mistakes.kept():
            items.append(_from_file(item, folder))
    read = Node(tuple(items), listed.file, listed.line, listed.path)
    return Node({**document.children, "profiles": read}, document.file, document.line, document.path)


def _from_file(item: Node, folder: Path) -> Node:
    path = folder / str(item.value)
    try:
        text = read_text(path, PROFILE_BYTES_MAX)
    except UnreadableError as error:
        hint = "give a mapping, or the path of a YAML file that holds one, relative to the scenario file"
        raise item.error(f"cannot read {shown(item.value)}: {error.message}", hint) from None
    return parse(str(path), text)


def own_profiles(
    sections: tuple[SwitchProfile, ...], document: Node, mistakes: Mistakes
) -> dict[str, Profile]:
    """Profiles of a scenario by name; a name that is taken, and a profile that cannot be, is a mistake."""
    made: dict[str, Profile] = {}
    nodes = document.children["profiles"].value if sections else ()
    assert isinstance(nodes, tuple)
    for section, node in zip(sections, nodes, strict=True):
        with mistakes.kept():
            if section.name in made:
                raise node.error(f"the name {section.name!r} appears twice", "use another name")
            made[section.name] = _made(section, node)
    return made


def read_profile(path: str) -> Profile:
    """The profile of a file that holds one.

    Raises
    ------
    ScenarioError
        It cannot be read, or is no profile.
    """
    node = _from_file(Node(path, path, 0, ""), Path())
    try:
        return _made(SwitchProfile.model_validate(node.plain), node)
    except ValidationError as error:
        raise explain(error, node, SwitchProfile) from None


def _made(section: SwitchProfile, node: Node) -> Profile:
    given = {key: getattr(section, key) for key in section.model_fields_set}
    values = {_FIELDS.get(key, key): value for key, value in given.items() if value is not None}
    try:
        return profile_from(values, node.place)
    except ProfileError as error:
        at, missing = node.nearest([error.key])
        raise at.error(error.message, error.hint, missing) from None
