"""What a damaged word does, message by message: which damage is harmless, healed, refused, or not noticed."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from netfold.homomorphic import sketch
from netfold.homomorphic.codec import Codec, DecodeError
from netfold.homomorphic.codecs.block_sparse import BlockSparse
from netfold.homomorphic.codecs.exact import DenseExact
from netfold.homomorphic.codecs.lossless import Lossless
from netfold.homomorphic.codecs.packed import Packed
from netfold.homomorphic.message import Gradient, Message, NoteKind
from netfold.testing import support, values
from tests.homomorphic.gradients import Damage, Played, bound_of, encoders_of, play

WORKERS = 3
ELEMENTS = 5000
BLOCKS = {"block_elements": 256}

# What may become of a round in which one merged word is damaged: the sum is `right` all the same, perhaps
# because members were sent again; some worker refuses (`refused`); or the sum is `wrong`, unless rounding
# hides it.
HEALED, CHECKED, UNCHECKED = {"right"}, {"right", "refused"}, {"right", "wrong"}
INDEX = {"index": CHECKED}
EXPONENTS = {"exponents": {"right", "refused", "wrong"}}  # one more is possible, and makes coarser steps
RANGES = {"ranges": CHECKED}  # more bits than needed do not hurt
PACKED = {"values": UNCHECKED}
SKETCH = {"values": HEALED}
LATER = {"dense tiles": UNCHECKED, "fallback": UNCHECKED}
STREAMED = {"blocks": UNCHECKED, "next blocks": CHECKED}
COUNTED = {"count": CHECKED}  # another count is another filter, as good

TABLE: dict[str, tuple[Codec, dict[str, set[str]]]] = {
    "packed": (Packed(**BLOCKS), INDEX | EXPONENTS | PACKED),
    "packed, two_level": (
        Packed("exact", "two_level", **BLOCKS),
        INDEX | {"index blocks": CHECKED} | RANGES | PACKED,
    ),
    "packed, bloom": (Packed("exact", "bloom", **BLOCKS), INDEX | COUNTED | RANGES | PACKED),
    "exact": (DenseExact(256), RANGES | PACKED),
    "block_sparse": (BlockSparse("exact", columns=4, **BLOCKS), RANGES | STREAMED),
    "block_sparse, bitmap": (
        BlockSparse("exact", "bitmap", **BLOCKS),
        {"block index": CHECKED} | RANGES | {"blocks": UNCHECKED},
    ),
    "repaired": (Lossless(**BLOCKS), INDEX | EXPONENTS | SKETCH),
    "repaired, exact": (Lossless(values="exact", **BLOCKS), INDEX | RANGES | SKETCH),
    "rotated": (Lossless("rotated", **BLOCKS), INDEX | EXPONENTS | SKETCH),
    "rotated, exact, bloom": (
        Lossless("rotated", values="exact", index="bloom", **BLOCKS),
        INDEX | COUNTED | RANGES | SKETCH,
    ),
    "concurrent": (  # whose steps may be coarser anyway
        Lossless(schedule="concurrent", **BLOCKS),
        INDEX | {"exponents": CHECKED} | SKETCH | LATER,
    ),
    "concurrent, exact": (
        Lossless(schedule="concurrent", values="exact", **BLOCKS),
        INDEX | RANGES | SKETCH | LATER,
    ),
    "concurrent, exact, two_level": (
        Lossless(schedule="concurrent", values="exact", index="two_level", **BLOCKS),
        INDEX | {"index blocks": CHECKED} | RANGES | SKETCH | LATER,
    ),
    "concurrent, rotated, exact": (
        Lossless("rotated", "concurrent", "exact", **BLOCKS),
        INDEX | RANGES | SKETCH | {"fallback": UNCHECKED},
    ),
}


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sketch, "TILE_MEMBERS", 150)


def drawn(density: float, seed: int, dense_to: int = 0, jumps_from: int = ELEMENTS) -> list[Gradient]:
    """Sparse everywhere, but dense at the beginning and denser at the end."""
    random = np.random.default_rng(seed)
    gradients = []
    for _ in range(WORKERS):
        wanted = support("iid", ELEMENTS, density, random=random)
        wanted[:dense_to] = True
        wanted[jumps_from:] |= random.random(ELEMENTS - jumps_from) < 0.4
        wanted[2048:2560] = False  # two blocks of zeros
        gradients.append(np.where(wanted, values("normal", ELEMENTS, random), np.float32(0)))
    return gradients


def rounds_of(codec: Codec) -> list[list[Gradient]]:
    """The last is the one that is damaged; of concurrent it has whole tiles, and some that outgrew."""
    if not (isinstance(codec, Lossless) and codec.schedule == "concurrent"):
        return [drawn(0.04, 1)]
    if codec.setting == "rotated":
        return [drawn(0.04, 1), drawn(0.04, 2)]
    return [drawn(0.04, 1, dense_to=1024), drawn(0.04, 2, dense_to=1024, jumps_from=4600)]


def last_round(codec: Codec, damage: Damage) -> Played:
    """All rounds with the same encoders, the last of them damaged."""
    encoders = encoders_of(codec, WORKERS)
    *before, last = rounds_of(codec)
    for step, gradients in enumerate(before):
        play(encoders, gradients, step)
    return play(encoders, last, len(before), damage=damage)


def changed(number: int, label: str, word: int, by: int) -> Damage:
    def damage(operation: int, message: Message, words: np.ndarray) -> None:
        if (operation, message.label) == (number, label):
            words[word] = (
                (int(words[word]) + by + 2**31) % 2**32 - 2**31
                if words.dtype == np.int32
                else (int(words[word]) + by) % 2**32
            )

    return damage


def is_right(codec: Codec, sound: Played, decoded: Gradient) -> bool:
    """To the bit; but what is sent again may have other steps than a forecast's."""
    if isinstance(codec, Lossless) and codec.schedule == "concurrent" and codec.values != "exact":
        gradients = rounds_of(codec)[-1]
        total = np.sum(gradients, axis=0, dtype=np.float64)
        return bool((np.abs(decoded - total) <= bound_of(codec, gradients)).all())
    return sound.decoded.tobytes() == decoded.tobytes()


def outcome(codec: Codec, sound: Played, damage: Damage) -> str:
    try:
        decoded = last_round(codec, damage).decoded
    except DecodeError:
        return "refused"
    return "right" if is_right(codec, sound, decoded) else "wrong"


@pytest.mark.parametrize("name", TABLE)
def test_a_word_that_is_off_by_one_or_by_many(name: str) -> None:
    codec, expected = TABLE[name]
    sound = last_round(codec, lambda number, message, words: None)
    random = np.random.default_rng(3)
    seen: dict[str, set[str]] = defaultdict(set)

    for number, operation in enumerate(sound.operations):
        for message in operation[0]:
            size = message.words.size
            for word in {0, size - 1, *random.integers(0, size, 2).tolist()}:
                for by in (1, -1, 1 << 24):
                    damage = changed(number, message.label, word, by)
                    seen[message.label].add(outcome(codec, sound, damage))

    assert expected.keys() == seen.keys()
    for label, outcomes in seen.items():
        assert outcomes <= expected[label], label
        assert ("wrong" in outcomes) == ("wrong" in expected[label]), label


@pytest.mark.parametrize("setting", ["repaired", "rotated"])
@pytest.mark.parametrize("values_kind", ["block_exponent", "exact"])
def test_every_counter_of_a_table_is_watched(setting: str, values_kind: str) -> None:
    codec = Lossless(setting, values=values_kind, block_elements=256)
    elements, density = (ELEMENTS, 0.04) if setting == "rotated" else (300, 0.2)
    gradients = [gradient[:elements].copy() for gradient in drawn(density, 9)]
    sound = play(encoders_of(codec, WORKERS), gradients)
    size = sound.operations[1][0][0].words.size

    for word in range(0, size, 5 if size < 1000 else 101):
        damage = changed(1, "values", word, 1 << word % 32)
        result = play(encoders_of(codec, WORKERS), gradients, damage=damage)

        (note,) = result.notes
        assert (note.kind, note.count) == (NoteKind.FALLBACK, 1)
        assert sound.decoded.tobytes() == result.decoded.tobytes()
