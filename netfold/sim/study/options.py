"""Codecs from command-line arguments: `packed`, or with options, `lossless:load=0.7`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from pydantic import ValidationError

from netfold.errors import ScenarioError
from netfold.homomorphic.codec import Codec
from netfold.homomorphic.codecs import codec_kinds
from netfold.sim.keys.fields import CodecOptions
from netfold.sim.keys.section import Section
from netfold.sim.scenario.explain import explain, unknown_key
from netfold.sim.scenario.node import Node, parse

_EXAMPLE = "use KIND:OPTION=VALUE,OPTION=VALUE, for example lossless:load=0.7,block_elements=1024"
_COMMAS = re.compile(r",(?![^\[{]*[\]}])")  # except inside a list or a mapping


class NamedCodec(NamedTuple):
    """A codec and its name in results, which is the argument's text."""

    name: str
    codec: Codec


class _Holder(Section):
    """The section that a scenario file would have for a codec."""

    codec: CodecOptions


def read_codecs(texts: Sequence[str]) -> tuple[NamedCodec, ...]:
    """Codecs from texts, each as `read_codec` reads it.

    Raises
    ------
    ScenarioError
        A text is not a codec, or appears twice.
    """
    for number, text in enumerate(texts):
        if text in texts[:number]:
            raise ScenarioError(text, 0, "", "appears twice", "name each codec once")
    return tuple(map(read_codec, texts))


def _options_of(kind: str) -> list[str] | None:
    """The options of a codec; None if there is no such codec."""
    known: Any = codec_kinds().get(kind)
    return [field.name for field in fields(known)] if known else None


def _require_option(kind: str, key: str, value: Node, options: list[str] | None) -> None:
    """Refuse a key that is not an option of a known kind."""
    if options == []:
        raise value.error(f"unknown key {key!r}", f"{kind} has no options")
    if options is not None and key not in options:
        raise unknown_key(value, key, options)


def read_kind(text: str, options_of: Callable[[str], list[str] | None], example: str) -> Node:
    """The mapping that "KIND" or "KIND:OPTION=VALUE,…" is short for.

    Parameters
    ----------
    text
        The text, also its own place in errors.
    options_of
        The options of a kind; None if there is no such kind, which is not refused here.
    example
        The hint if it cannot be read.

    Raises
    ------
    ScenarioError
        It is not of this form, or has an option twice or one that the kind does not have.
    """
    kind, colon, options = text.partition(":")
    written = {"kind": Node(kind, text, 0, "")}
    for part in _COMMAS.split(options) if colon else ():
        key, equals, value = part.partition("=")
        if not (key and equals and value):
            raise ScenarioError(text, 0, "", f"cannot read {part!r}", example)
        if key in written:
            raise ScenarioError(text, 0, "", f"the key {key!r} appears twice", "name each option once")
        written[key] = read_value(value, text, key)
        _require_option(kind, key, written[key], options_of(kind))
    return Node(written, text, 0, "")


def read_value(text: str, place: str, path: str) -> Node:
    """A command-line value, read as YAML; `place` and `path` are its location in errors.

    Raises
    ------
    ScenarioError
        The YAML is broken.
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
        The kind or an option is unknown, or the codec refuses a value. The message is that of a scenario
        file, with the text itself as its place.
    """
    tree = Node({"codec": read_kind(text, _options_of, _EXAMPLE)}, text, 0, "")
    try:
        return NamedCodec(text, _Holder.model_validate(tree.plain).codec)
    except ValidationError as error:
        raise explain(error, tree, _Holder) from None
