"""Draws a value of any schema: by what the schema says of it, and by hints where it has to make sense."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.soak.language import AGAIN, Schema, alternatives, is_repeated, kind_of, language
from tests.soak.language import Place as At

Section = dict[str, Any]

TEXTS = {  # by a piece of the pattern
    "|Gbps": ("1Gbps", "10Gbps", "25 Gbps", "100Gbps", "100Gbps", "0.1Tbps"),
    "|ns|": ("0ps", "100ns", "1us", "20us", "0.3ms", "2ms"),
    "|KiB": ("64B", "1000B", "4KiB", "64KiB", "1MB", "16MiB"),
    "%$": ("0%", "1%", "12.5%", "50 %", "100%"),
}
OPTIONAL = 0.3  # share of keys with a default that are written
SHORT = 0.15  # share of sections written in a short form, where their kind has one
NULL = 0.04  # share of keys that may be null and are

FEW = 64  # of anything that has no hint: runs stay small


@dataclass
class Scene:
    """What the parts of a scenario have to agree on."""

    chance: random.Random
    kinds: Mapping[str, str]  # by section, as planned
    faults: tuple[str, ...] = ()
    workers: int = 2
    hosts: int = 4
    switches: tuple[str, ...] = ("s0",)
    host_names: tuple[str, ...] = ("h0", "h1", "h2", "h3")
    jobs: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    files: dict[str, bytes] = field(default_factory=dict)

    def one(self, *values: Any) -> Any:
        """One of some values."""
        return self.chance.choice(values)

    def maybe(self, share: float) -> bool:
        """True with this probability."""
        return self.chance.random() < share

    def some(self, values: Any, least: int = 1) -> list[Any]:
        """Some of a list, in order."""
        values = list(values)
        size = self.chance.randint(min(least, len(values)), len(values))
        return sorted(self.chance.sample(values, size), key=values.index)


Hint = Callable[[Scene], Any]
Fix = Callable[[Scene, Section], None]


class Values:
    """Draws values for a scene; `hints` are by path, or by "*." and a key; `fixes` by section."""

    def __init__(self, scene: Scene, hints: Mapping[str, Hint], fixes: Mapping[str, Fix]) -> None:
        self.scene, self.hints, self.fixes = scene, hints, fixes

    def value(self, schema: Schema, path: str) -> Any:
        """A value of a schema at a path without kinds."""
        options = alternatives(schema)
        is_planned = path in self.scene.kinds
        if (
            len(options) > 1
            and not is_planned
            and self.scene.maybe(NULL)
            and any(one.get("type") == "null" for one in options)
        ):
            return None
        options = [one for one in options if one.get("type") != "null"]
        kinds = {kind_of(one): one for one in options if kind_of(one)}
        if (wanted := self.scene.kinds.get(path)) in kinds:
            short = self.hints.get(f"{path}[{wanted}]")
            return short(self.scene) if short and self.scene.maybe(SHORT) else self.plain(kinds[wanted], path)
        for name in (path, "*." + path.rsplit(".", 1)[-1]):
            if name in self.hints:
                return self.hints[name](self.scene)
        return self.plain(self.scene.one(*options), path)

    def plain(self, option: Schema, path: str) -> Any:
        """A value of one alternative."""
        if "const" in option:
            return option["const"]
        if "enum" in option:
            wanted = self.scene.kinds.get(path.removesuffix(".kind"))
            return wanted if wanted in option["enum"] else self.scene.one(*option["enum"])
        match option.get("type"):
            case "object":
                return self.mapping(option, path)
            case "array":
                return self.array(option, path)
            case "boolean":
                return self.scene.maybe(0.5)
            case "integer":
                return self.integer(option)
            case "number":
                return self.number(option)
            case "string":
                return self.text(option)
        return self.scene.one(1, "text", [1], {"a": 1}, True)

    def integer(self, option: Schema) -> int:
        least = int(option.get("minimum", 1))
        default = option.get("default")
        usual = max(least + 3, default if isinstance(default, int) else 0)
        most = min(int(option.get("maximum", usual)), max(usual, FEW))  # a limit of 2^53 is none
        return self.scene.one(least, min(most, least + 1), self.scene.chance.randint(least, most))

    def number(self, option: Schema) -> float:
        least = float(option.get("minimum", option.get("exclusiveMinimum", 0)))
        most = float(option.get("maximum", option.get("exclusiveMaximum", least + 2)))
        return round(self.scene.chance.uniform(least, most), 3) or most / 2

    def text(self, option: Schema) -> str:
        pattern = option.get("pattern", "")
        for piece, texts in TEXTS.items():
            if piece in pattern:
                return str(self.scene.one(*texts))
        examples = option.get("examples", ("a", "name", "x1"))
        return str(self.scene.one(*examples))

    def array(self, option: Schema, path: str) -> list[Any]:
        if prefix := option.get("prefixItems"):
            return [self.value(one, path) for one in prefix]
        least = int(option.get("minItems", 0))
        return [self.value(option["items"], path) for _ in range(least + self.scene.one(0, 1, 1, 2))]

    def mapping(self, option: Schema, path: str) -> Section:
        """A section: its kind, what is planned, what has no default, and some of the rest."""
        kind = kind_of(option)
        found: Section = {}
        for name, child in option.get("properties", {}).items():
            at = AGAIN.get(path, path)
            inner = f"{at}.{name}" if at else name
            if name == "kind" or self.is_written(At(at, kind), name, child, inner):
                found[name] = self.value(child, inner)
        again = AGAIN.get(path, path)
        for name in (again, f"{again}[{kind}]"):
            if fix := self.fixes.get(name):
                fix(self.scene, found)
        return found

    def is_written(self, at: At, name: str, child: Schema, inner: str) -> bool:
        """Whether a key is written."""
        if is_repeated(at, name):
            return False
        if inner in self.scene.kinds:
            return True
        if inner in language().kinds and inner != "hosts":
            return inner in NEEDED
        optional = 0.6 if at.path in RARE else OPTIONAL
        return self.scene.maybe(optional if "default" in child or name in DERIVED else 0.995)


# Keys whose default is made of something else, so that the schema has none.
DERIVED = {
    *("frame", "slots", "message_packets", "fusion", "optimizer", "schedule"),
    *("expand", "links", "switch_profiles", "without", "uplink_rate", "core_rate", "fabric_rate"),
    *("local_rate", "global_rate", "bottleneck_rate", "slow", "like", "merges"),
    *("overflows", "adder_bits", "group_size", "group_count", "timeout", "seed"),
    *("description", "routing", "hosts", "device", "overlap", "published"),
    *("admission", "baseline"),
}
RARE = ("collective.inner", "collective.outer", "topology.links", "workload.fusion.costs.decode", "sweep")
NEEDED = (
    *("topology", "workload", "codec", "collective"),
    *("workload.model", "collective.inner", "collective.outer"),
)
