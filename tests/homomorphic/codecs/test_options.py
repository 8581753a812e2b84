"""Options of codecs that are out of range or do not go together: every refusal in full."""

from __future__ import annotations

import re
from dataclasses import fields
from math import inf, nan
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from netfold.homomorphic.codec import codec_kinds

Case = tuple[str, dict[str, Any], str]  # kind, options, what is said


def wrong(kind: str, key: str, rule: str, *values: Any, **others: Any) -> list[Case]:
    """Values of one option that break its rule; what is said begins with the option and its value."""
    return [(kind, {key: value, **others}, f"{key} is {value!r}: {rule}") for value in values]


SHARE = "must be above 0 and at most 1"
POSITIVE = "must be finite and more than 0, or left out"
FACTOR = "must be finite and at least 2.94e-39, for example 1e6"
NO_FACTOR = "it needs a factor, for example 1e6"
BLOCKS = "must be a power of two from {} to 65536, 4096 is a good choice"
UNIT = "leave it out for the network's unit"
ALPHA = (
    "must be finite and not below 0; leave it out for 1 / γ, "
    "or write 1e300 for as few uploads as staleness allows"
)
STEP = (
    "must be more than 0 and at most 1e+30, for example 0.001; "
    "leave it out for twice the mean magnitude of a step"
)
LOAD = (
    "members per counter must be between 0.05 and 0.81; above 0.818 a sketch with three hashes cannot be "
    "peeled, 0.77 is a good choice"
)
ROWS = (
    "must be an odd number; an even number has two middle values, and the lower one is too small on average; "
    "3 and 5 are usual"
)
RATIO = "elements per counter must be 1 or more, 10 is usual"
RELEASED = {"setting": "published"}
REPAIRED = "remove it, or use setting repaired"
COUNTERS = "setting published has counters of one word; use float32 or block_exponent, or setting repaired"

CASES: list[Case] = [
    *wrong("auto", "latency_us", POSITIVE, 0.0, -1.0, inf, nan),
    *wrong("auto", "rate_gbps", POSITIVE, 0.0, -1.0, inf, nan),
    *wrong("auto", "memory_gbps", POSITIVE, 0.0, -1.0, inf, nan),
    *wrong("bird", "share", f"{SHARE}, 0.1 is usual", 0.0, -0.1, 1.1, nan),
    *wrong("bird_plus", "share", f"{SHARE}, 0.1 is usual", 0.0),
    *wrong("bird_plus", "ratio", f"{SHARE}, 0.1 is usual", 0.0, 1.5),
    *wrong("bird_plus", "gamma", "must be from 0 to 1048576, 2 is usual", -0.1, inf),
    *wrong("bird_plus", "of", "it needs a gamma, for example 2", "values"),
    (
        *("bird_plus", {"gamma": 1.0, "ratio": 0.1}),
        "gamma and ratio exclude each other: ratio finds a gamma; leave one of them out",
    ),
    *wrong("block_sparse", "columns", "must be at least 1, 512 is usual", 0),
    *wrong("block_sparse", "block_elements", BLOCKS.format(256), 128, 300, 1 << 17),
    *wrong("count_sketch", "ratio", f"{SHARE}, 0.1 is usual", 0.0, nan),
    *wrong("count_sketch", "rows", ROWS, 2),
    *wrong("count_sketch", "candidates", "must be at least 1, 4 is usual, or 0 for one round", -1),
    *wrong("count_sketch", "momentum", "must be at least 0 and below 1, 0.9 is usual", 1.0),
    *wrong("count_sketch", "block_elements", f"a block needs at least 1 word; {UNIT}", 0),
    (
        *("count_sketch", {"block_elements": 64, "values": "float32"}),
        "block_elements belongs to values block_exponent, found values float32; remove it",
    ),
    *wrong("dense", "values", NO_FACTOR, "factor"),
    ("dense", {"factor": 1e6}, "factor belongs to values factor, found values block_exponent; remove it"),
    (
        *("dense", {"values": "float32", "block_elements": 64}),
        "block_elements belongs to values block_exponent and exact, found values float32; remove it",
    ),
    *wrong("dense", "block_elements", f"a block needs at least 1 element; {UNIT}", 0),
    *wrong("dense", "block_elements", BLOCKS.format(64), 0, values="exact"),
    *wrong("fixed_point", "factor", FACTOR, 0.0, 2.0**-129, nan),
    (
        *("fixed_point", {"block_elements": 64, "factor": 1e6}),
        "factor and block_elements exclude each other: with a factor no block has an exponent; "
        "leave one of them out",
    ),
    *wrong("lossless", "load", LOAD, 0.04, 0.82, nan),
    *wrong("lossless", "block_elements", BLOCKS.format(64), 32),
    ("lossless", {"ratio": 10.0}, "ratio belongs to setting published, found setting repaired; remove it"),
    (
        *("lossless", {"index_bits": 1}),
        "index_bits belongs to setting published, found setting repaired; remove it",
    ),
    (
        *("lossless", {"schedule": "concurrent", **RELEASED}),
        f"schedule is 'concurrent': setting published can only be 'staged'; {REPAIRED}",
    ),
    *wrong("lossless", "index", f"setting published can only be 'flat'; {REPAIRED}", "bloom", **RELEASED),
    *wrong("lossless", "values", COUNTERS, "exact", **RELEASED),
    *wrong("lossless", "ratio", RATIO, 0.5, nan, **RELEASED),
    *wrong("marsit", "every", "must be 0 or more steps, 0 for never", -1),
    *wrong("marsit", "every", "no round sends signs, and eta_s has no use; remove it", 1, eta_s=0.1),
    *wrong("marsit", "eta_s", STEP, 0.0, nan),
    *wrong("marsit", "values", NO_FACTOR, "factor"),
    ("marsit", {"factor": 1e6}, "factor belongs to values factor, found values float32; remove it"),
    *wrong("packed", "block_elements", BLOCKS.format(64), 32, 100, 1 << 17),
    (
        *("random_k", {"unbiased": True, "feedback": True}),
        "feedback and unbiased exclude each other: scaled sums would count what is held back twice; "
        "leave one of them out",
    ),
    *wrong("sasg", "share", f"{SHARE}, 0.01 is usual", 0.0),
    *wrong("sasg", "alpha", ALPHA, -1.0, nan),
    *wrong("sasg", "staleness", "must be at least 1 step, 10 is usual", 0),
    *wrong("sasg", "fraction_bits", "must be from 0 to 60, 24 is usual", 61, aggregation="incremental"),
    (
        *("sasg", {"fraction_bits": 24}),
        "fraction_bits belongs to aggregation incremental, found last; remove it",
    ),
    *wrong("topk", "share", f"{SHARE}, 0.01 is usual", 0.0, 1.0001, nan),
]


@pytest.mark.parametrize(("kind", "options", "text"), CASES)
def test_options_that_cannot_work(kind: str, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        codec_kinds()[kind](**options)


@pytest.mark.parametrize("kind", sorted(codec_kinds()))
def test_a_number_is_no_text_and_a_key_is_a_field(kind: str) -> None:
    codec = codec_kinds()[kind]
    options: TypeAdapter[object] = TypeAdapter(codec)
    numbers = [field.name for field in fields(codec) if re.search("int|float", str(field.type))]

    for given in ({"no_such_key": 1}, *({name: "8"} for name in numbers)):
        with pytest.raises(ValidationError):
            options.validate_python(given)
