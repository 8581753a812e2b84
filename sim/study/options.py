"""Codecs as the command line writes them: `packed`, or with options, `lossless:load=0.7`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from pydantic import ValidationError

from netfold.homomorphic.codec import Codec
from netfold.homomorphic.codecs import codec_kinds
from netfold.sim.errors import ScenarioError
from netfold.sim.keys.fields import CodecOptions
from netfold.sim.keys.section import Section
from netfold.sim.scenario.explain import explain, unknown_key
from netfold.sim.scenario.node import Node, parse

_EXAMPLE = "use KIND:OPTION=VALUE,OPTION=VALUE, for example lossless:load=0.7,block_elements=1024"
_COMMAS = re.compile(r",(?![^\[{]*[\]}])")  # but none inside of a list or a mapping


class NamedCodec(NamedTuple):
    """A codec, and what it is called in results: what was written for it."""

    name: str
    codec: Codec


class _Holder(Section):
    """What a scenario file would hold of it."""

    codec: CodecOptions


def read_codecs(texts: Sequence[str]) -> tuple[NamedCodec, ...]:
    """Codecs from texts; see `read_codec`.

    Raises
    ------
    ScenarioError
        A text that is no codec, or that stands there twice.
    """
    for number, text in enumerate(texts):
        if text in texts[:number]:
            raise ScenarioError(text, 0, "", "appears twice", "name each codec once")
    return tuple(map(read_codec, texts))


def _require_option(kind: str, key: str, value: Node) -> None:
    """Refuse what is no option of a codec that there is."""
    known: Any = codec_kinds().get(kind)
    options = [field.name for field in fields(known)] if known else [key]
    if not options:
        raise value.error(f"unknown key {key!r}", f"{kind} has no options")
    if key not in options:
        raise unknown_key(value, key, options)


def read_value(text: str, place: str, path: str) -> Node:
    """What YAML makes of a value on the command line; `place` and `path` are where errors say that it is.

    Raises
    ------
    ScenarioError
        Broken YAML.
    """
    try:
        return parse(place, text, first_line=0, path=path)
    except ScenarioError as error:
        hint = "check its brackets and quotes" if error.message.startswith("broken YAML") else error.hint
        raise ScenarioError(place, 0, path, error.message, hint) from None


def read_codec(text: str) -> NamedCodec:
    """The codec of "KIND" or "KIND:OPTION=VALUE,…"; values are YAML and mean what they do in a scenario file.

    Raises
    ------
    ScenarioError
        Unknown kinds and options, and values that the codec refuses, in the words of scenario files; as place
        it has the text itself.
    """
    kind, colon, options = text.partition(":")
    written = {"kind": Node(kind, text, 0, "")}
    for part in _COMMAS.split(options) if colon else ():
        key, equals, value = part.partition("=")
        if not (key and equals and value):
            raise ScenarioError(text, 0, "", f"cannot read {part!r}", _EXAMPLE)
        if key in written:
            raise ScenarioError(text, 0, "", f"the key {key!r} appears twice", "name each option once")
        written[key] = read_value(value, text, key)
        _require_option(kind, key, written[key])
    tree = Node({"codec": Node(written, text, 0, "")}, text, 0, "")
    try:
        return NamedCodec(text, _Holder.model_validate(tree.plain).codec)
    except ValidationError as error:
        raise explain(error, tree, _Holder) from None
