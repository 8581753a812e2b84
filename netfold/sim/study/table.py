"""The terminal's tables of a study, a line per codec, pattern and density: results, and bytes by message."""

from __future__ import annotations

import re

from rich.table import Table
from rich.text import Text

from netfold.sim.plan.idle_network import NO_WORK
from netfold.sim.report import words
from netfold.sim.report.compare import FittingTable
from netfold.sim.study.measure import Study, name_of, share
from netfold.sim.study.record import CodecRecord, SpeedRecord

_BYTES_HEADING = "Bytes that one worker sends up in a round"

_NAME_CHARACTERS = 20
_US_PER_S = 1e6
_KEYS_COUNT = 3  # of the table: codec, pattern and density


def study_table(study: Study) -> Table:
    """Cost, speed and accuracy of each codec, with notes below."""
    source = study.source
    heading = (
        f"elements {source.elements}, workers {source.workers}, rounds {study.rounds}, seed {study.seed}"
    )
    table = FittingTable(heading, study_notes(study), _KEYS_COUNT)
    table.add_column("codec")
    table.add_column("pattern")
    for column in ("density", "wire", "ops", "enc GB/s", "dec GB/s", "recovery", "error"):
        table.add_column(column, justify="right")
    table.add_column("exact")
    for record, speed in zip(study.records, study.speeds, strict=True):
        table.add_row(*_cells(record, speed))
    return table


def _cells(record: CodecRecord, speed: SpeedRecord) -> list[Text]:
    error = record.max_error_over_bound
    cells = [
        _in_lines(record.codec),
        record.pattern,
        share(record.density),
        words.optional(record.wire_ratio),
        f"{record.operations:.3g}",
        words.optional(speed.encode_gb_per_s),
        words.optional(speed.decode_gb_per_s),
        _recovery(record.recovery),
        "not finite" if error is None else words.digits(error),
        "yes" if record.exact_sums else "no",
    ]
    return [Text(cell) for cell in cells]  # not str: brackets in a codec's options are no markup


def _recovery(recovery: float) -> str:
    """A share as text; "100 %" only if nothing is missing."""
    return "100 %" if recovery == 1 else f"{min(100 * recovery, 99.99):.4g} %"


def _in_lines(codec: str) -> str:
    """A codec's name in as many lines as it has options, if it is long."""
    return codec if len(codec) <= _NAME_CHARACTERS else re.sub("([:,])", "\\1\n", codec)


def messages_table(study: Study) -> Table:
    """Bytes of one worker by message, a column per label."""
    labels = list(dict.fromkeys(message.label for message in study.messages))
    table = FittingTable(_BYTES_HEADING, keys_count=_KEYS_COUNT)
    table.add_column("codec")
    table.add_column("pattern")
    for heading in ("density", *labels, "all"):
        table.add_column(Text(heading), justify="right")
    for record in study.records:
        sizes = study.bytes_of(record)
        parts = [words.scaled(sizes.get(label), "B") for label in labels]
        total = words.scaled(record.up_bytes, "B")
        table.add_row(
            *map(Text, (_in_lines(record.codec), record.pattern, share(record.density), *parts, total))
        )
    return table


def charges_table(study: Study) -> Table:
    """Times of a worker beside those that a simulation charges, with this machine's memory as the device."""
    notes = [
        "charged: what the codec counts as read and written, at the rate of a copy on this machine",
        "×: charged over measured; a device file (netfold calibrate) has the rate that codecs reach",
    ]
    table = FittingTable("Measured and charged times of a worker", notes, keys_count=_KEYS_COUNT)
    table.add_column("codec")
    table.add_column("pattern")
    for heading in ("density", "encode", "charged", "×", "decode", "charged", "×"):
        table.add_column(heading, justify="right")
    for speed in study.speeds:
        shown = [
            text
            for time_s, charge in (
                (speed.encode_s, speed.encode_charge),
                (speed.decode_s, speed.decode_charge),
            )
            for text in (
                words.time(time_s * _US_PER_S),
                words.time(None if charge is None else charge * time_s * _US_PER_S),
                words.times(charge),
            )
        ]
        table.add_row(*map(Text, (_in_lines(speed.codec), speed.pattern, share(speed.density), *shown)))
    return table


def study_notes(study: Study) -> list[str]:
    """Explanations of the columns, and events of each codec."""
    return [
        "wire: dense float32 bytes over those that one worker sends; ops: network operations in a round",
        "enc, dec: dense float32 bytes over a worker's CPU time, the fastest round's, on this machine,",
        f"  which copies memory at {words.digits(study.copy_gb_per_s)} GB/s",
        "error: the largest, 1 is the codec's bound; exact: all sums are the exact ones, rounded once",
        *study.source.notes,
        *(f"codec {name} {NO_WORK}" for name in study.free_codecs),
        *(f"{name_of(record)}: {event}" for record in study.records for event in _events(record)),
    ]


def _events(record: CodecRecord) -> list[str]:
    """Notes of a codec, counted."""
    events = [record.choices] if record.choices else []
    if record.redone_parts:
        events.append(f"{record.redone_parts} of {record.redone_of} {words.REDONE}")
    if record.forecast_misses:
        events.append(f"{record.forecast_misses} {words.MISSED_FORECASTS}")
    if record.holds_back:
        loss = f"nmse {words.optional(record.nmse)}, cosine {words.optional(record.cosine)}"
        events.append(f"workers do not contribute their whole gradients; against the sum of those: {loss}")
    if record.infinite_elements:
        events.append(f"{record.infinite_elements} sums are beyond float32 and became infinite")
    return events
