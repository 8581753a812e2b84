"""Codecs as texts, and what is said of wrong ones."""

import pytest

from netfold.homomorphic.codecs.dense.kinds import FixedPoint
from netfold.homomorphic.codecs.sketched.lossless import Lossless
from netfold.homomorphic.codecs.sparse.packed import Packed
from netfold.sim.errors import ScenarioError
from netfold.sim.study.options import read_codec, read_codecs

LISTS = "`netfold codecs` lists codecs and their options"
EXAMPLE = "use KIND:OPTION=VALUE,OPTION=VALUE, for example lossless:load=0.7,block_elements=1024"


def test_a_kind_with_options() -> None:
    texts = ["packed", "lossless:load=0.5,block_elements=1024", "fixed_point:factor=1e6,block_elements=null"]

    assert [(text, codec) for text, codec in read_codecs(texts)] == [
        (texts[0], Packed()),
        (texts[1], Lossless(load=0.5, block_elements=1024)),
        (texts[2], FixedPoint(factor=1e6)),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pakced", "pakced: cannot use 'pakced' as a kind\n  did you mean 'packed'? allowed: "),
        (
            "lossless:lod=0.7",
            "lossless:lod=0.7: lod: unknown key 'lod'\n  did you mean 'load'? allowed: setting, ",
        ),
        ("none:load=0.7", "none:load=0.7: load: unknown key 'load'\n  none has no options"),
        ("lossless:load=x", f"lossless:load=x: load: must be a number, found 'x'\n  {LISTS}"),
        (
            "packed:block_elements=7",
            "packed:block_elements=7: block_elements is 7: must be a power of two from 64 to 65536, ",
        ),
        ("packed:", f"packed:: cannot read ''\n  {EXAMPLE}"),
        ("packed:kind=none", "packed:kind=none: the key 'kind' appears twice\n  name each option once"),
        (
            "lossless:load=[1",
            "lossless:load=[1: load: broken YAML: expected ',' or ']', but got '<stream end>'\n"
            "  check its brackets and quotes",
        ),
    ],
)
def test_what_is_wrong_is_reported(text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        read_codec(text)

    assert str(caught.value).startswith(message)
    assert caught.value.exit_code == 2


def test_no_codec_twice() -> None:
    with pytest.raises(ScenarioError) as caught:
        read_codecs(["packed", "none", "packed"])

    assert str(caught.value) == "packed: appears twice\n  name each codec once"
