"""No public entry runs a codec that cannot serve its workers: each refuses it in words, at once."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import netfold
from netfold.homomorphic.codecs.bird.lanes import Digits
from netfold.homomorphic.contract import ContractError
from netfold.homomorphic.gate import OPTION_MAX, CodecRefusedError
from netfold.sim.commands.main import app
from netfold.sim.errors import NetfoldError
from netfold.sim.run.codec_errors import CodecError
from netfold.sim.run.codec_errors import make_encoder as make_watched
from netfold.sim.study.measure import run_study
from netfold.sim.study.options import read_codec, read_codecs
from netfold.sim.study.source import synthetic_source
from netfold.torch.codecs import check_codec as check_for_hooks
from tests.test_layers import sources

WORKERS = 33
GRADIENTS = np.random.default_rng(1).standard_normal((WORKERS, 64)).astype(np.float32)
BEYOND = f"fixed_point:block_elements={2**64}"
REFUSED = {
    "majority": ("majority has room for 15 workers, found 33", "at most 15 workers, or another codec"),
    "bird_shared:lanes=4": ("bird_shared has room for 7 workers, found 33", "lanes: 32"),
    BEYOND: (f"block_elements is {2**64}: must be at most {OPTION_MAX}", f"{OPTION_MAX} or less"),
}


def scenario(codec: str) -> dict[str, Any]:
    kind, _, option = codec.partition(":")
    key, _, value = option.partition("=")
    return {
        "name": "gate",
        "topology": {"kind": "star", "hosts": WORKERS},
        "workers": WORKERS,
        "workload": {"kind": "synthetic", "elements": 1000, "density": "10%", "steps": 1},
        "codec": {"kind": kind, **({key: int(value)} if key else {})},
        "collective": {"kind": "ring"},
    }


def command(*arguments: str) -> None:
    """A command, whose errors are raised as the command line would print them."""
    found = CliRunner().invoke(app, arguments, catch_exceptions=True)
    if isinstance(found.exception, NetfoldError):
        raise found.exception
    raise NetfoldError(found.output, "")


def cell_of(found: netfold.Matrixed) -> None:
    """What the matrix says of its only codec."""
    assert set(found.cells["verdict"]) == {"refused"}
    raise NetfoldError(found.cells["reason"][0], found.cells["hint"][0])


ENTRIES: dict[str, Callable[[str], object]] = {
    "fold": lambda codec: netfold.fold(codec, GRADIENTS),
    "study": lambda codec: netfold.study([codec], workers=WORKERS, elements=1000),
    "codecs study": lambda codec: command(
        "codecs", "study", codec, "--workers", str(WORKERS), "--elements", "1000"
    ),
    "calibrate": lambda codec: run_study(
        read_codecs([codec]), synthetic_source({"elements": "1000"}, WORKERS, 1), 1, 1, lambda *_: None
    ),
    "validate": lambda codec: netfold.validate(scenario(codec)),
    "run": lambda codec: netfold.run(scenario(codec)),
    "matrix": lambda codec: cell_of(netfold.matrix([codec], collectives=["ring"], workers=WORKERS)),
    "simulation": lambda codec: make_watched(read_codec(codec).codec, 0, WORKERS, 1),
    "hook": lambda codec: check_for_hooks(read_codec(codec).codec, WORKERS, False),
    "check_round": lambda codec: netfold.testing.check_round(read_codec(codec).codec, list(GRADIENTS)),
}


@pytest.mark.parametrize("codec", REFUSED)
@pytest.mark.parametrize("entry", ENTRIES)
def test_every_entry_refuses_in_words(entry: str, codec: str) -> None:
    with pytest.raises((NetfoldError, CodecError, CodecRefusedError)) as refused:
        ENTRIES[entry](codec)

    reason, remedy = REFUSED[codec]
    text = " ".join(str(refused.value).split())
    assert reason in text
    assert remedy in text


def test_a_codec_is_checked_with_the_workers_it_has_room_for() -> None:
    netfold.testing.check_codec(read_codec("majority").codec, cases=5)
    netfold.testing.check_codec(read_codec("bird_shared:lanes=4").codec, cases=5)


def test_digits_of_too_many_workers_end() -> None:
    with pytest.raises(ValueError, match="lanes of 4 bits have room for digits of 15 workers, found 16"):
        Digits.of(24, 4, 16)
    assert Digits.of(24, 4, 15).count == 24  # a bit each


def test_only_the_gate_asks_codecs_and_makes_their_encoders() -> None:
    """Codecs that are made of others know their workers already."""
    found = [
        (path.name, ast.unparse(node))
        for path in sources()
        if "codecs" not in path.parts and path.name != "gate.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and ast.unparse(node.func.value).endswith("codec")
        and node.func.attr in ("worker", "refusal")
    ]

    assert found == []


def test_fold_says_what_a_codec_s_contract_misses(monkeypatch: pytest.MonkeyPatch) -> None:
    codec = read_codec("none").codec
    monkeypatch.setattr(type(codec), "worker", lambda self, *rest: Unfit())

    with pytest.raises(
        netfold.RunError, match="codec 'none': the exchange yields 7, must be a tuple"
    ) as error:
        netfold.fold(codec, [[1.0]])
    assert isinstance(error.value.__cause__, ContractError)


class Unfit:
    def exchange(self, gradient: object, round: object) -> Any:
        yield 7
