"""Faults of the matrix of codecs and collectives, and of what it is made from."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

CONTROLS = ["tests/sim/matrix/test_controls.py"]
WHOLE = ["tests/sim/matrix/test_matrix.py"]
PROGRAMS = ["tests/sim/resolve/test_programs.py"]

MUTANTS: list[Mutant] = [
    *faults(
        "sim/matrix/cells.py",
        WHOLE,
        [
            (
                "programs that do not recover from loss are run with it",
                "if loss and variant.jobs[0].collective.needs_lossless:",
                "if False:",
            ),
            (
                "the second run loses nothing",
                '"faults": [{"kind": "loss", "rate": loss}] if loss else [],',
                '"faults": [],',
            ),
            (
                "integer words are not counted",
                "one.integer_words + one.float_words + one.at_hosts.words",
                "one.float_words + one.at_hosts.words",
            ),
            (
                "words that hosts merged are not counted",
                "one.integer_words + one.float_words + one.at_hosts.words",
                "one.integer_words + one.float_words",
            ),
            (
                "bytes down are those of all workers",
                'metrics["wire_bytes_down"] / workers',
                'metrics["wire_bytes_down"]',
            ),
            ("estimates count as compared", "one.elements - one.estimated_elements", "2 * one.elements"),
        ],
    ),
    *faults(
        "sim/matrix/cells.py",
        CONTROLS,
        [
            (
                "options that have no default are left out",
                "if one.default is MISSING or getattr(self.codec, one.name) != one.default",
                "if one.default is not MISSING and getattr(self.codec, one.name) != one.default",
            ),
        ],
    ),
    *faults(
        "sim/matrix/make.py",
        CONTROLS,
        [
            (
                "the switch that can do most comes first",
                "sorted(PROFILES.values(), key=_ability)",
                "sorted(PROFILES.values(), key=_ability, reverse=True)",
            ),
            (
                "a run that fails is no failure",
                "cell.verdict != REFUSED and kind(cell.verdict) not in GOOD",
                "cell.verdict != REFUSED and kind(cell.verdict) not in (*GOOD, 'fail', 'stuck')",
            ),
        ],
    ),
    *faults(
        "sim/matrix/make.py",
        WHOLE,
        [
            (
                "settings are no rows",
                'for setting in getattr(codec, "settings", ("",)):',
                'for setting in ("",):',
            ),
            (
                "columns that refuse loss are advised",
                "if cell.loss and kind(cell.verdict) in GOOD]",
                "if not cell.loss and kind(cell.verdict) in GOOD]",
            ),
        ],
    ),
    *faults(
        "sim/matrix/table.py",
        CONTROLS,
        [
            ("every codec has notes of its own", '.replace(f"codec {kind_of_codec!r}", "the codec")', ""),
            (
                "one worker is several",
                "words.counted(wanted.workers, 'worker')",
                "f'{wanted.workers} workers'",
            ),
        ],
    ),
    *faults(
        "sim/collectives/registry.py",
        CONTROLS,
        [
            (
                "room for workers is asked last",
                '    check_workers(job.location, codec, len(job.hosts), "wrap")\n',
                "",
            ),
        ],
    ),
    *faults(
        "sim/collectives/in_network/placement/resolve.py",
        [*WHOLE, *PROGRAMS],
        [
            (
                "programs that may deliver partial sums are advised to all",
                "(spec.is_all_or_nothing or codec.is_linear)",
                "True",
            ),
            (
                "programs without the merges are advised",
                "(spec.merges is None or codec.merges <= spec.merges)",
                "True",
            ),
        ],
    ),
]
