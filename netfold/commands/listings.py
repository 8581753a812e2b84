"""Tables of the command line: codecs, switch profiles with their sources, programs in a switch's stages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any

from rich.table import Table
from rich.text import Text

from netfold.homomorphic.codec import codec_kinds
from netfold.homomorphic.merge import MERGEABLE, Merge
from netfold.sim.report import words
from netfold.sim.report.columns import FittingTable
from netfold.switch.fit import Fit, FitError, suits
from netfold.switch.profiles import KINDS, OVERFLOWS, PIPELINE, PROFILES, Profile
from netfold.switch.program import binary_size, programs
from netfold.units import RATE, SIZE, TIME

_NOT_FACTS = ("name", "summary", "kind", "sources")


def profiles_table() -> Table:
    """One row per profile."""
    note = "netfold switch profiles NAME: all numbers of one, with their sources"
    table = FittingTable("", [note])
    for heading in ("profile", "what it is"):
        table.add_column(heading)
    table.add_column("a pass", justify="right")
    for heading in ("merges", "kind", "port", "timers", "overflow"):
        table.add_column(heading)
    for profile in PROFILES.values():
        table.add_row(
            profile.name,
            profile.summary,
            TIME.format(profile.pass_latency_ps) if profile.pass_latency_ps else "0",
            _names(profile.merges),
            profile.kind,
            RATE.format(profile.port_rate_bps) if profile.port_rate_bps else "any",
            "yes" if profile.has_timers else "no",
            "any" if profile.overflows == OVERFLOWS else ", ".join(profile.overflows) or words.NOTHING,
        )
    return table


def programs_table() -> Table:
    """One row per switch program."""
    table = FittingTable("", ["netfold switch fit PROGRAM --profile PROFILE: its resources"])
    for heading in ("program", "what it is", "runs on", "in a run"):
        table.add_column(heading)
    for name, spec in programs().items():
        able = ", ".join(profile.name for profile in PROFILES.values() if suits(profile, name))
        table.add_row(name, spec.summary, able, "no: fit only" if spec.machine is None else "yes")
    return table


def profile_table(profile: Profile) -> Table:
    """All values of a profile with their sources; those that are 0 or empty are left out."""
    table = Table(title=f"{profile.name}: {profile.summary}", title_justify="left")
    table.add_column("field", no_wrap=True)
    table.add_column("value", no_wrap=True, justify="right")
    table.add_column("source")
    table.add_row("kind", profile.kind, KINDS[profile.kind])
    for field in fields(Profile):
        value = getattr(profile, field.name)
        if field.name not in _NOT_FACTS and value:
            table.add_row(field.name, _format_value(field.name, value), Text(profile.sources[field.name]))
    return table


def fit_table(fit: Fit) -> Table:
    """The resources of a program, stage by stage; below, its passes, latency, loopback ports and memory."""
    program, profile = fit.program, fit.profile
    demand = program.demand
    heading = (
        f"{program.name} on {profile.name}: {demand.workers} workers, {demand.slots} slots, "
        f"{demand.words} words a packet"
    )
    if profile.kind == PIPELINE:
        table = FittingTable(heading, list(_notes(fit)))
        _add_stages(table, fit)
        return table
    table = FittingTable(heading, list(_notes(fit)))
    table.add_column("registers")
    for title in ("arrays", "entries", "bits", "size"):
        table.add_column(title, justify="right")
    for register in program.registers:
        counts = (register.count, register.entries, register.bits)
        table.add_row(register.name, *map(str, counts), binary_size(register.size_bytes))
    return table


def _add_stages(table: Table, fit: Fit) -> None:
    """Add the columns and rows of a pipeline's stages, and a row with their totals."""
    profile = fit.profile
    table.add_column("stage", justify="right")
    for title in ("stateful ALUs", "SRAM blocks", "map RAMs"):
        table.add_column(title, justify="right")
    table.add_column("registers")
    limits = (profile.salus_per_stage, profile.sram_blocks_per_stage, profile.map_rams_per_stage)
    for number, stage in enumerate(fit.stages):
        used = (stage.salus, stage.blocks, stage.blocks)
        names = [part.name if part.arrays == 1 else f"{part.name} × {part.arrays}" for part in stage.parts]
        table.add_row(str(number), *(f"{a}/{b}" for a, b in zip(used, limits, strict=True)), ", ".join(names))
    blocks = sum(stage.blocks for stage in fit.stages)
    totals = zip((fit.program.salus, blocks, blocks), limits, strict=True)
    cells = []
    for used_count, limit in totals:
        there_are = limit * profile.stages
        cells.append(f"{used_count}/{there_are}, {100 * used_count / there_are:.0f} %")
    table.add_row("all", *cells, f"{len(fit.stages)} of {profile.stages} stages")


def as_dict(fit: Fit) -> dict[str, Any]:
    """The output of `--json` for a program that fits."""
    program, profile = fit.program, fit.profile
    blocks = sum(stage.blocks for stage in fit.stages)
    return {
        "fits": True,
        "program": program.name,
        "profile": profile.name,
        "demand": asdict(program.demand),
        "stages": [
            {
                "stateful_alus": stage.salus,
                "sram_blocks": stage.blocks,
                "map_rams": stage.blocks,
                "registers": {part.name: part.arrays for part in stage.parts},
            }
            for stage in fit.stages
        ],
        "stateful_alus": [program.salus, profile.salus],
        "sram_blocks": [blocks, profile.stages * profile.sram_blocks_per_stage],
        "map_rams": [blocks, profile.stages * profile.map_rams_per_stage],
        "packet_passes": fit.packet_passes,
        "read_passes": fit.read_passes,
        "reply_passes": fit.reply_passes,
        "round_passes": fit.round_passes(program.demand.workers),
        "result_latency_ps": fit.result_latency_ps,
        "loopback_ports": [fit.loopback_ports, profile.loopback_ports],
        "header_vector_bits": [program.header_vector_bits, profile.phv_bits],
        "values_bytes": program.values_bytes,
        "registers_bytes": program.state_bytes,
    }


def refusal_dict(error: FitError) -> dict[str, Any]:
    # `--json` prints this.
    return {"fits": False, "about": error.about, "message": error.message, "hint": error.hint}


def _notes(fit: Fit) -> Iterator[str]:
    """The lines below the table of a fit."""
    program, profile, workers = fit.program, fit.profile, fit.program.demand.workers
    parts = [f"{fit.packet_passes} a packet"]
    parts += [f"{fit.read_passes} to read the result out"] if fit.read_passes else []
    parts += [f"{fit.reply_passes} for the server's reply"] if fit.reply_passes else []
    later_passes = fit.read_passes + fit.reply_passes
    formula = (
        (str(fit.packet_passes) if fit.packet_passes > 1 else "")
        + "N"
        + (f" + {later_passes}" if later_passes else "")
    )
    yield f"passes         {fit.round_passes(workers)} a slot round ({formula}): {', '.join(parts)}"
    passes_text = "1 pass" if fit.extra_passes == 0 else f"{1 + fit.extra_passes} passes"
    latency = TIME.format(fit.result_latency_ps) if fit.result_latency_ps else "0"
    yield f"latency        {latency} for the packet that completes a slot ({passes_text})"
    if profile.kind == PIPELINE:
        yield f"loopback       {_loopback(fit)}"
        share = f"{100 * program.header_vector_bits / profile.phv_bits:.0f} %"
        yield (
            f"header vector  {program.header_vector_bits} of {profile.phv_bits} bits ({share}): "
            f"{program.header_bytes} B of headers, {program.words_per_pass} words"
        )
    pipes = f" in each of {program.pipes} pipelines" if program.pipes > 1 and profile.kind == PIPELINE else ""
    of = f" of {binary_size(profile.memory_bytes)}" if profile.memory_bytes else ""
    sizes = [binary_size(size // program.pipes) for size in (program.state_bytes, program.values_bytes)]
    yield f"registers      {sizes[0]}{of}{pipes}, values alone {sizes[1]}"


def _loopback(fit: Fit) -> str:
    """How many loopback ports are busy, if the profile has a port rate."""
    demand, profile = fit.program.demand, fit.profile
    if fit.loopback_ports is None:
        return f"{profile.loopback_ports} ports, load unknown: port_rate is 0, any rate"
    rate = RATE.format(demand.rate_bps or profile.port_rate_bps)
    ports = f"{fit.loopback_ports} of {profile.loopback_ports} ports"
    return f"{ports} busy when {demand.workers} workers send at {rate}"


def _names(merges: frozenset[Merge]) -> str:
    """Merges in the order of `Merge`."""
    if merges == MERGEABLE:
        return "all but gather"
    return ", ".join(merge.value for merge in Merge if merge in merges) or words.NOTHING


def _format_value(field: str, value: Any) -> str:
    """A value as text with its unit."""
    if isinstance(value, frozenset):
        return "\n".join(_names(value).split(", "))
    if isinstance(value, tuple):
        return "\n".join(map(str, value))
    if isinstance(value, bool):
        return "yes"
    quantity = {"bps": RATE, "ps": TIME, "bytes": SIZE}.get(field.rpartition("_")[2])
    return quantity.format(value) if quantity else str(value)


# The listing of codecs: their kinds, and the meaning and default of every option.


@dataclass(frozen=True)
class CodecOption:
    """A key that a codec may have in a scenario."""

    name: str
    default: Any  # a JSON value
    is_required: bool
    meaning: str


@dataclass(frozen=True)
class CodecDescription:
    """A codec that a scenario can name."""

    kind: str
    meaning: str
    status: str  # published, reconstructed or ours
    source: str  # paper or repository; empty: none
    options: tuple[CodecOption, ...]


def listing() -> tuple[CodecDescription, ...]:
    return tuple(_describe(kind, codec) for kind, codec in codec_kinds().items())


def _describe(kind: str, codec: Any) -> CodecDescription:
    meaning, meanings = _docstring(codec.__doc__ or "")
    options = tuple(
        CodecOption(
            field.name,
            None if field.default is MISSING else field.default,
            field.default is MISSING,
            meanings.get(field.name, ""),
        )
        for field in fields(codec)
    )
    return CodecDescription(kind, meaning, codec.origin.status, codec.origin.source, options)


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """The first paragraph, and the meanings of options from lines that begin with "option:"."""
    first, _, options_text = text.partition("\n\n")
    lines = "\n".join(line.strip() for line in options_text.splitlines())
    options = re.findall(r"^(\w+): (.*?)(?=^\w+: |\Z)", lines, re.MULTILINE | re.DOTALL)
    return " ".join(first.split()), {key: " ".join(meaning.split()) for key, meaning in options}
