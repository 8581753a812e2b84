"""Building blocks of scenario keys: sections, value types, and the locations that errors point to."""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from dataclasses import Field as DataclassField
from decimal import Decimal
from functools import cache, partial
from itertools import pairwise
from textwrap import fill
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeVar, get_args, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    PlainValidator,
    PydanticSchemaGenerationError,
    TypeAdapter,
    WithJsonSchema,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import (
    CoreSchema,
    PydanticKnownError,
    PydanticUndefined,
    SchemaValidator,
    core_schema,
)

from netfold.errors import ScenarioError, shown
from netfold.homomorphic.codec import Codec, codec_kinds
from netfold.kinds import registered
from netfold.switch.profiles import Profile
from netfold.switch.program import FORMATS, formats
from netfold.topologies.graph import LINK_RANGES
from netfold.topologies.placement import POLICIES
from netfold.units import (
    FRACTION_PATTERN,
    RATE,
    SIZE,
    TIME,
    Quantity,
    UnitError,
    format_fraction,
    parse_fraction,
)

# Field types of a scenario file: text with a unit in the file, plain numbers in Python.


COUNT_MAX = 2**53
"""The largest whole number: a larger one, written as 1e16, may be another than is meant."""
NAME_PATTERN = r"^[a-z0-9][a-z0-9_-]*$"
NAME_MAX = 200  # characters, which are bytes: file systems take names of 255, and results add to them
NAME_RULE = "lower-case letters, digits, '-' and '_', starting with a letter or digit"


def _json(quantity: Quantity) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": quantity.pattern, "examples": [quantity.example]})


def _up_to(quantity: Quantity, highest: int) -> Callable[[int], int]:
    """Refuses values above the limit, in the units of the quantity."""

    def check(value: int) -> int:
        if value > highest:
            raise ValueError(
                f"must be at most {quantity.format(highest)}, found {shown(quantity.format(value))}"
            )
        return value

    return check


Rate = Annotated[
    int,
    BeforeValidator(RATE.parse),
    Field(gt=0),
    AfterValidator(_up_to(RATE, LINK_RANGES["rate_bps"][1])),
    PlainSerializer(RATE.format, return_type=str),
    _json(RATE),
]
_check_time = _up_to(TIME, LINK_RANGES["delay_ps"][1])
Time = Annotated[
    int,
    BeforeValidator(TIME.parse),
    Field(ge=0),
    AfterValidator(_check_time),
    PlainSerializer(TIME.format, return_type=str),
    _json(TIME),
]


def _time_or(*words: str) -> Any:
    """The type of a time, or one of some words."""

    def read(value: object) -> object:
        try:
            return value if value in words else _check_time(TIME.parse(value))
        except UnitError as error:
            raise UnitError(error.message, f"{error.hint}, or {' or '.join(words)}") from None

    return Annotated[
        int | Literal[words],
        PlainValidator(read),
        PlainSerializer(lambda value: value if value in words else TIME.format(value)),
        WithJsonSchema({"anyOf": [{"enum": list(words)}, TypeAdapter(Time).json_schema()]}),
    ]


AutoTime = _time_or("auto")
ReleasedTime = _time_or("auto", "released")
RerouteTime = _time_or("never")
Size = Annotated[
    int,
    BeforeValidator(SIZE.parse),
    Field(gt=0),
    AfterValidator(_up_to(SIZE, LINK_RANGES["buffer_bytes"][1])),
    PlainSerializer(SIZE.format, return_type=str),
    _json(SIZE),
]
Share = Annotated[
    float,
    BeforeValidator(parse_fraction),
    PlainSerializer(format_fraction, return_type=str),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0, "maximum": 1},
                {"type": "string", "pattern": FRACTION_PATTERN},
            ],
            "examples": ["1%", 0.01],
        }
    ),
]


def _whole(value: object) -> object:
    """The int for a count such as 1e6, which YAML reads as a float; pydantic refuses other floats."""
    is_whole = isinstance(value, float) and abs(value) <= COUNT_MAX and value.is_integer()
    return int(value) if is_whole else value  # type: ignore[call-overload]


def is_name(value: object) -> bool:
    """Whether a value can name a scenario or a variant."""
    if not isinstance(value, str) or len(value) > NAME_MAX:
        return False
    return re.fullmatch(NAME_PATTERN, value) is not None


def count_of(least: int, most: int = COUNT_MAX) -> Any:
    return Annotated[int, Field(ge=least, le=most), BeforeValidator(_whole)]


def named_or_count(names: tuple[str, ...], noun: str) -> BeforeValidator:
    """Refuse what is neither one of some names nor a whole number of at least 1, with one message."""

    def check(value: object) -> object:
        count = _whole(value)
        if value not in names and not (type(count) is int and 1 <= count <= COUNT_MAX):
            raise ValueError(
                f"must be {', '.join(names)} or a number of {noun}, at least 1; found {shown(value)}"
            )
        return count

    return BeforeValidator(check)


Count = Annotated[int, Field(ge=1, le=COUNT_MAX), BeforeValidator(_whole)]
Name = Annotated[str, Field(pattern=NAME_PATTERN, max_length=NAME_MAX)]


def _check(accepts: Callable[[Any], bool], message: str) -> BeforeValidator:
    """Refuse a value with one message instead of one for each member of a union."""

    def check(value: object) -> object:
        if not accepts(value):
            raise ValueError(f"{message}, found {shown(value)}")
        return value

    return BeforeValidator(check)


def _is_placement(value: object) -> bool:
    return (isinstance(value, str) and value in POLICIES) or (
        isinstance(value, tuple) and len(value) > 0 and all(isinstance(host, str) for host in value)
    )


Placement = Annotated[
    Literal["pack", "spread", "random", "rails"] | tuple[str, ...],
    _check(_is_placement, f"must be {', '.join(map(repr, POLICIES))} or a list of host names"),
]
Pair = Annotated[
    tuple[Count, Count],
    _check(lambda value: isinstance(value, tuple) and len(value) == 2, "must be a list of two whole numbers"),
]


def refuse_unknown(value: object, names: Iterable[str]) -> object:
    """Return the value if it is one of these names, refuse it otherwise."""
    allowed = list(names)
    if value not in allowed:
        raise PydanticKnownError("literal_error", {"expected": ", ".join(map(repr, allowed))})
    return value


class OneOf:
    """One of some names, which are looked up when a file is read or a schema is written."""

    def __init__(self, names: Callable[[], Iterable[str]], describe: Callable[[], str] | None = None) -> None:
        self._names = names
        self._describe = describe

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            lambda value: refuse_unknown(value, self._names())
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        described = {"description": self._describe()} if self._describe else {}
        return {**described, "enum": list(self._names()), "type": "string"}


def _adapter(codec: Any) -> TypeAdapter[Codec]:
    """What reads a codec's options; a class that has none that a scenario can set is a ValueError."""
    if not is_dataclass(codec):
        name = getattr(codec, "__name__", codec)
        raise ValueError(
            f"is registered by {name}, which is no dataclass\ndecorate the class with @dataclass(frozen=True)"
        )
    try:
        return TypeAdapter(codec)
    except PydanticSchemaGenerationError as error:
        reason = str(error).partition(". ")[0]
        raise ValueError(
            f"has a field that no scenario can set: {reason}\nuse numbers, text, booleans, and lists of these"
        ) from None


class _RegisteredCodec:
    """Makes the codec that a mapping describes: `kind` selects it, the other keys are its fields."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._validate)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"anyOf": [self._describe(kind) for kind in codec_kinds()]}

    @staticmethod
    def _validate(value: object) -> Codec:
        if not isinstance(value, dict):
            raise PydanticKnownError("model_type", {"class_name": "codec"})
        options = {key: _option(key, option) for key, option in value.items() if key != "kind"}
        kinds = codec_kinds()
        if "kind" not in value:
            raise PydanticKnownError("union_tag_not_found", {"discriminator": "kind"})
        kind = value["kind"]
        if not isinstance(kind, str) or kind not in kinds:
            raise PydanticKnownError(
                "union_tag_invalid",
                {"discriminator": "kind", "tag": str(kind), "expected_tags": ", ".join(kinds)},
            )
        # A strict dataclass takes a mapping from JSON only. Its error becomes the cause of this field's.
        return _adapter(kinds[kind]).validate_json(json.dumps(options))

    @staticmethod
    def _describe(kind: str) -> JsonSchemaValue:
        schema = _adapter(codec_kinds()[kind]).json_schema(mode="serialization")
        keys = {key: _schema(key, described) for key, described in schema.get("properties", {}).items()}
        return {**schema, "properties": {"kind": {"const": kind}, **keys}, "additionalProperties": False}


_SHARES = ("share", "ratio")
"""Options of codecs that may be percentages."""


def _option(key: str, option: object) -> object:
    """The value of a codec's option, which is a number if it is written as a percentage such as "1%"."""
    if key in _SHARES and isinstance(option, str) and re.fullmatch(FRACTION_PATTERN, option, re.ASCII):
        return float(Decimal(option.rstrip("% ")) / 100)
    return option


def _schema(key: str, described: JsonSchemaValue) -> JsonSchemaValue:
    """The schema of a codec's option, which may be a percentage if it is a share."""
    if key not in _SHARES:
        return described
    types = described.get("anyOf", [{"type": described.get("type")}])
    others = {name: value for name, value in described.items() if name not in ("type", "anyOf")}
    return {**others, "anyOf": [*types, {"type": "string", "pattern": FRACTION_PATTERN}]}


CodecOptions = Annotated[Codec, _RegisteredCodec()]


# The base classes of every mapping of a scenario file.


_UNITS = ("_bps", "_ps", "_bytes")


def key_of(name: str) -> str:
    # "rate" for "rate_bps".
    return next((name.removesuffix(unit) for unit in _UNITS if name.endswith(unit)), name)


class Section(BaseModel):
    """A mapping in the file: strict types, no unknown keys, immutable."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)
    described_by: ClassVar[type[Section] | None] = None
    """The section that has the docstrings of its keys; None: they are its own."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        described_class = handler(schema)
        _describe(cls, handler.resolve_ref_schema(described_class)["properties"])
        return described_class


def _describe(section: type[AnySection], properties: dict[str, Any]) -> None:
    """Add to the properties of a schema what their keys mean, and defaults as a file has them."""
    for key, field in keys(section).items():
        if field.description is not None:
            properties[key]["description"] = field.description
        if isinstance(field.default, Option):
            properties[key]["default"] = written(field.default)


class Option:
    """What a scenario can name or describe: a frozen dataclass whose fields are the keys.

    The key of `rate_bps` is `rate`: a unit is left out, the type of the field reads it. Attribute docstrings
    are the key table. A subclass with a `kind` is one of a family, see `netfold.kinds`. Pydantic reads and
    writes it; what that takes is made when a file first names it.
    """

    def __post_init__(self) -> None:
        """Refuse values that do not fit together: an `OptionError` if one key is to blame, else a ValueError.
        It calls that of the next base.
        """
        option: Any = self
        for field in fields(option):  # of a file only keys have been set
            if field.default_factory is not MISSING and field.name not in vars(self):
                object.__setattr__(self, field.name, field.default_factory())

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        alias_generator=key_of,
    )

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        resolved: Any = handler.resolve_ref_schema(schema)
        resolved["strict"] = False  # takes a mapping, too; its fields are strict
        names = [field.name for field in key_fields(cls)]
        arguments = resolved["schema"]
        while arguments["type"] != "dataclass-args":
            arguments = arguments["schema"]
        by_name = {field["name"]: field for field in arguments["fields"]}
        arguments["fields"] = [by_name[name] for name in names]
        resolved["fields"] = names
        return schema

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        described_class = handler(schema)
        resolved = handler.resolve_ref_schema(described_class)
        properties = resolved.get("properties", {})
        if (kind := kind_of(cls)) is not None:
            properties = {"kind": {"const": kind, "type": "string"}, **properties}
        _describe(cls, properties)
        resolved["properties"] = properties
        return described_class


AnySection = Section | Option
S = TypeVar("S", bound=AnySection)
NO_KEY = {"is_key": False}
"""Metadata of a field of an option that no file can set."""


def key_fields(option: type[Option]) -> list[DataclassField[Any]]:
    """The fields of an option that are keys: its own, then those of its bases."""
    every: tuple[DataclassField[Any], ...] = fields(option)  # type: ignore[arg-type]
    declared = vars(option).get("__annotations__", {})
    by_class = sorted(every, key=lambda field: field.name not in declared)
    return [field for field in by_class if field.metadata.get("is_key", True)]


class ByKind:
    """Marks a type whose mappings name a `kind`; only the section of that kind is ever prepared.

    The type is a family of the registry, or a union of sections. A discriminator of pydantic prepares all of
    them before it reads the first mapping. Errors are the same.
    """

    def sections(self, source: Any) -> Mapping[str, Callable[[], type[AnySection]]]:
        return by_kind(members_of(source))

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            lambda value: of_kind(value, self.sections(source)),
            metadata={"marked": source},
            serialization=core_schema.plain_serializer_function_ser_schema(written),
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        plain: Any = schema
        sections = self.sections(plain["metadata"]["marked"])
        return handler(
            core_schema.tagged_union_schema({kind: _read(make()) for kind, make in sections.items()}, "kind")
        )


def by_kind(sections: Iterable[type[AnySection]]) -> dict[str, Callable[[], type[AnySection]]]:
    # What makes each: itself.
    return {kind: partial(_itself, section) for section in sections for kind in kinds_of(section)}


def _itself(section: type[AnySection]) -> type[AnySection]:
    return section


def of_kind(value: object, sections: Mapping[str, Callable[[], type[AnySection]]]) -> object:
    """The section that a mapping describes; an error becomes the cause of the field's."""
    if isinstance(value, AnySection):  # a default
        return value
    if not isinstance(value, dict):
        raise PydanticKnownError("model_attributes_type")
    if "kind" not in value:
        raise PydanticKnownError("union_tag_not_found", {"discriminator": "'kind'"})
    kind = value["kind"]
    if not isinstance(kind, str) or kind not in sections:
        context = {"discriminator": "'kind'", "tag": str(kind), "expected_tags": ", ".join(sections)}
        raise PydanticKnownError("union_tag_invalid", context)
    section: Any = sections[kind]()  # to mypy a class has no hash
    return _reader(kind, section).validate_python(value)


@cache
def _reader(kind: str, section: type[AnySection]) -> SchemaValidator:
    # The places of its errors begin with the kind, as those of a union.
    return SchemaValidator(core_schema.tagged_union_schema({kind: _read(section)}, "kind"))


def _read(section: type[AnySection]) -> CoreSchema:
    """What reads a mapping with a `kind`, which an option has in its class."""
    if issubclass(section, Section):
        section.model_rebuild()
        return section.__pydantic_core_schema__
    option: Any = section
    return core_schema.no_info_before_validator_function(_without_kind, _adapter_of(option).core_schema)


def read(section: type[S], value: Any) -> S:
    """A section or an option without a `kind`, from a mapping."""
    if issubclass(section, Section):
        return section.model_validate(value)
    option: Any = section
    made: S = _adapter_of(option).validate_python(value)
    return made


def _without_kind(value: Any) -> Any:
    return {key: field for key, field in value.items() if key != "kind"} if isinstance(value, dict) else value


@cache
def _adapter_of(option: type[Option]) -> TypeAdapter[Any]:
    return TypeAdapter(option)


def written(section: AnySection, **settings: Any) -> dict[str, Any]:
    """A section as a file has it, `kind` first; `settings` are those of pydantic's `model_dump`."""
    if isinstance(section, Section):
        return section.model_dump(mode="json", by_alias=True, **settings)
    option: Any = type(section)
    kind = kind_of(option)
    values = _adapter_of(option).dump_python(section, mode="json", by_alias=True, **settings)
    return values if kind is None else {"kind": kind, **values}


def members_of(marked: Any) -> tuple[Any, ...]:
    """The sections of a family or of a union; of another type itself."""
    if "members" in getattr(marked, "__dict__", ()):  # sections of what is registered
        return tuple(marked.members())
    return tuple(registered(marked).values()) or get_args(marked) or (marked,)


def kind_of(option: type[Option]) -> str | None:
    """The kind of an option; None: it is part of another one."""
    has_key = any(field.name == "kind" for field in key_fields(option))
    return None if has_key else getattr(option, "kind", None)


def kinds_of(section: type[AnySection]) -> tuple[str, ...]:
    """The kinds that a section is for; empty: it has no kind."""
    if issubclass(section, Option):
        kind = kind_of(section)
        return () if kind is None else (kind,)
    return get_args(section.model_fields["kind"].annotation) if "kind" in section.model_fields else ()


@cache
def _docstrings(module: str) -> dict[str, dict[str, str]]:
    """The docstrings below the fields of all classes of a module, by class and field."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError):  # it has no source, as a session of Python
        return {}
    classes = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return {node.name: dict(_fields_with_docstrings(node)) for node in classes}


def _fields_with_docstrings(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, below in pairwise(node.body):
        match field, below:
            case ast.AnnAssign(ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                yield name, inspect.cleandoc(text)


def described(text: str) -> str:
    # Wrapped like a docstring.
    return fill(text, 106, initial_indent="   ").lstrip()


def keys(section: type[AnySection]) -> dict[str, FieldInfo]:
    """The keys of a section as a file spells them (`from` and `for` are not Python names), `kind` first.

    A key whose field has no description is described by the docstring below it. Pydantic could do so when it
    makes the class, but that reads sources, and would take a fifth of the time of a `validate`.
    """
    option: Any = section
    described_fields = _described_fields(option) if issubclass(section, Option) else section.model_fields
    described_by = section if issubclass(section, Option) else section.described_by or section
    for base in described_by.__mro__:
        for name, text in _docstrings(base.__module__).get(base.__name__, {}).items():
            if name in described_fields and described_fields[name].description is None:
                described_fields[name].description = text
    key_fields_by_name = {field.alias or name: field for name, field in described_fields.items()}
    return dict(sorted(key_fields_by_name.items(), key=lambda item: item[0] != "kind"))


@cache
def _described_fields(option: type[Option]) -> dict[str, FieldInfo]:
    """The keys of an option as pydantic describes them, by field."""
    types, infos = get_type_hints(option, include_extras=True), {}
    literal: Any = Literal
    if (kind := kind_of(option)) is not None:
        infos["kind"] = FieldInfo.from_annotation(literal[kind])
    for key in key_fields(option):
        default: Any = PydanticUndefined if key.default is MISSING else key.default
        infos[key.name] = FieldInfo.from_annotated_attribute(types[key.name], default)
        infos[key.name].alias = infos[key.name].alias or key_of(key.name)
    return infos


# Packet formats in a scenario file: the name of a known format, or a custom one.


# On the wire: Ethernet's minimum, and the engine's maximum.
PACKET_MIN_BYTES, PACKET_MAX_BYTES = 84, 1 << 16
Bytes = Annotated[
    int,
    BeforeValidator(SIZE.parse),
    Field(ge=0),
    PlainSerializer(SIZE.format, return_type=str),
    WithJsonSchema({"type": "string", "pattern": SIZE.pattern, "examples": ["82B"]}),
]


class CustomFrame(Section):
    """A custom packet format. All sizes are sizes on the wire: they include the frame check sequence (4 B),
    preamble and inter-frame gap (20 B)."""

    words: Annotated[Count, Field(le=PACKET_MAX_BYTES // 4)]
    """32-bit words of a full packet."""
    overhead: Bytes
    """Bytes of a packet besides words: headers, frame check sequence, preamble and gap. RoCEv2 has 82B."""
    first: Bytes = 0
    """Extra bytes of the first packet of a message, such as 16B for the RETH of RoCEv2."""
    last: Bytes = 0
    """Extra bytes of the last packet of a message, such as 4B for immediate data."""
    ack: Bytes = PACKET_MIN_BYTES
    """Size of an acknowledgement between hosts."""

    @model_validator(mode="after")
    def _fits_ethernet_and_clock(self) -> CustomFrame:
        least, most = 4 * self.words + self.overhead, PACKET_MAX_BYTES
        full = least + self.first + self.last
        for name, size_bytes in (("a full packet", full), ("an acknowledgement", self.ack)):
            if size_bytes > PACKET_MAX_BYTES:
                raise ValueError(f"{name} of {size_bytes}B is too long\nuse {most}B on the wire at most")
        for name, size_bytes in (("a full packet", least), ("an acknowledgement", self.ack)):
            if size_bytes < PACKET_MIN_BYTES:
                raise ValueError(
                    f"{name} of {size_bytes}B is shorter than Ethernet's minimum\n"
                    f"use {PACKET_MIN_BYTES}B or more: 64B, and 20B of preamble and gap"
                )
        return self


def _custom_or_named(names: Callable[[], Iterable[str]]) -> BeforeValidator:
    """Accept a mapping as a custom format, and anything else only if it is one of these names."""

    def check(value: object) -> object:
        if isinstance(value, dict):
            return CustomFrame.model_validate(value)
        return value if isinstance(value, CustomFrame) else refuse_unknown(value, names())

    return BeforeValidator(check)


def _of_hosts() -> Iterable[str]:
    return [frame.name for frame in FORMATS]


HostFrame = Annotated[Annotated[str, OneOf(_of_hosts)] | CustomFrame, _custom_or_named(_of_hosts)]
SwitchFrame = Annotated[Annotated[str, OneOf(formats)] | CustomFrame, _custom_or_named(formats)]


# The location of a variant or job in its scenario, which errors point to.


class ScenarioInfo(Protocol):
    """The parts of a scenario that resolving needs besides its sections."""

    @property
    def file(self) -> str: ...  # the path as given

    @property
    def seed(self) -> int: ...

    @property
    def switch_profiles(self) -> Mapping[str, Profile]: ...  # custom switch profiles by name

    # What to raise when the value at a path is unusable.
    def error(self, path: str, message: str, hint: str = "", variant: str | None = None) -> ScenarioError: ...


@dataclass(frozen=True)
class Location:
    """A variant, or one of its jobs if it has several."""

    scenario: ScenarioInfo
    variant: str
    job: str = ""
    number: int = 0
    """The job's number among those of its template, from 1; 0 if it is the only one."""

    @property
    def name(self) -> str:
        # Empty if the variant has one job.
        return f"{self.job}-{self.number}" if self.number else self.job

    @property
    def label(self) -> str:
        # Its name in results.
        return f"{self.variant}/{self.name}" if self.job else self.variant

    @property
    def name_in_errors(self) -> str:
        # What errors about other jobs call it.
        return f"job {self.name!r}"

    def error(self, path: str, message: str, hint: str = "") -> ScenarioError:
        # `path` is one of the variant.
        return self.scenario.error(path, message, hint, self.variant)

    def job_error(self, path: str, message: str, hint: str = "") -> ScenarioError:
        # `path` is one of the job.
        return self.error(f"jobs.{self.job}.{path}" if self.job else path, message, hint)
