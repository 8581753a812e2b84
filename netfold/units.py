"""Conversion of rates, times, sizes and fractions between text and the integers used internally.

Strings such as "100Gbps", "1us", "64KiB" or "1%" exist in scenario files and reports only; everywhere else
a rate is int bits per second, a time int picoseconds, a size int bytes and a fraction a float in [0, 1].
Conversion is exact: text without an integer value in the base unit is refused, and `parse(format(x)) == x`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction

from netfold.errors import NetfoldError, shown

PS_PER_US, PS_PER_MS, PS_PER_S = 10**6, 10**9, 10**12
_LARGEST = 2**63 - 1  # the engine keeps every quantity in int64
_NUMBER = re.compile(r"([+-]?)(\d+)(?:\.(\d+))? ?(\S*)", re.ASCII)
_FORMAT_DECIMALS = 6
_DIGITS_MAX = 1000
"""Digits of a number as text: far more than any value needs; Python reads 4300."""
_ROUGH_DIGITS = 3


class UnitError(NetfoldError, ValueError):
    """Text that is not a rate, time, size or fraction."""


@dataclass(frozen=True)
class Quantity:
    """One kind of quantity: its name, its units in terms of the base unit, and unsupported spellings."""

    noun: str
    units: Mapping[str, int]  # ascending
    example: str
    aliases: Mapping[str, int] = field(default_factory=dict)  # never accepted; used to suggest the fix

    @property
    def pattern(self) -> str:
        """Regular expression of the texts that `parse` accepts, for the JSON Schema."""
        return rf"^\d+(\.\d+)? ?({'|'.join(self.units)})$"

    def parse(self, text: object) -> int:
        """Value in the base unit.

        Raises
        ------
        UnitError
            Not a string, no or an unknown unit, negative, not a whole number of base units, or too large.
        """
        match = _NUMBER.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise self._unreadable(text)
        sign, whole, decimals, unit = match.groups(default="")
        check_digits(whole + decimals)
        if unit not in self.units:
            raise self._unreadable(text, self._suggest(whole, decimals, unit))
        if sign == "-":
            raise UnitError(
                f"a {self.noun} cannot be negative, found {shown(text)}", f"for example {self.example!r}"
            )
        value = _scale(whole, decimals, self.units[unit])
        base = next(iter(self.units))
        if value.denominator != 1:
            raise UnitError(
                f"{text!r} is not a whole number of {base}", f"the smallest {self.noun} is 1{base}"
            )
        if value > _LARGEST:
            raise UnitError(f"{text!r} is too large", f"the largest {self.noun} is {_LARGEST}{base}")
        return int(value)

    def format(self, value: int) -> str:
        """Shortest exact text, with the largest unit if several are as short: 1500000000 is "1.5Gbps"."""
        texts = []
        for unit, factor in self.units.items():
            scaled, remainder = divmod(value * 10**_FORMAT_DECIMALS, factor)
            if (remainder == 0 and value >= factor) or factor == 1:
                texts.append(f"{Decimal(scaled).scaleb(-_FORMAT_DECIMALS):f}".rstrip("0").rstrip(".") + unit)
        return min(reversed(texts), key=len)

    def rough(self, value: int) -> str:
        """Short text for messages, rounded up to three significant digits: 54811040ps is "54.9us".

        It is never less than the value, so that a recommended value suffices.
        """
        step = 10 ** max(0, len(str(value)) - _ROUGH_DIGITS)
        return self.format(-(-value // step) * step)

    def _suggest(self, whole: str, decimals: str, unit: str) -> str:
        if not unit:  # any unit could be meant
            return ""
        spellings = {name.lower(): factor for name, factor in {**self.aliases, **self.units}.items()}
        factor = self.aliases.get(unit) or spellings.get(unit.lower())
        value = _scale(whole, decimals, factor or 1)
        return self.format(int(value)) if factor and value.denominator == 1 else ""

    def _unreadable(self, text: object, suggestion: str = "") -> UnitError:
        fix = f"{text} = {suggestion!r}" if suggestion else f"for example {self.example!r}"
        return UnitError(
            f"cannot read {shown(text)} as a {self.noun}",
            f"use a number and one of {', '.join(self.units)} ({fix})",
        )


def check_digits(text: str) -> None:
    """Refuse a number of more digits than any value needs: Python cannot read very long ones."""
    if (count := sum(map(str.isdecimal, text))) > _DIGITS_MAX:
        raise UnitError(f"cannot read a number of {count:,} digits", f"use {_DIGITS_MAX:,} digits at most")


def _scale(whole: str, decimals: str, factor: int) -> Fraction:
    return Fraction(int(whole + decimals) * factor, 10 ** len(decimals))


_BITS = {"bps": 1, "Kbps": 10**3, "Mbps": 10**6, "Gbps": 10**9, "Tbps": 10**12}
RATE = Quantity(
    "rate",
    _BITS,
    "100Gbps",
    {
        unit.replace("bps", end): factor
        for end in ("b/s", "bit/s", "bit", "b", "")
        for unit, factor in _BITS.items()
    }
    | {unit.replace("bps", end): 8 * factor for end in ("B/s", "Bps") for unit, factor in _BITS.items()},
)
TIME = Quantity(
    "time",
    {"ps": 1, "ns": 10**3, "us": PS_PER_US, "ms": PS_PER_MS, "s": PS_PER_S},
    "1us",
    {
        "µs": 10**6,
        "μs": 10**6,
        "nsec": 10**3,
        "usec": 10**6,
        "msec": 10**9,
        "sec": PS_PER_S,
        "min": 60 * PS_PER_S,
        "h": 3600 * PS_PER_S,
    },
)
SIZE = Quantity(
    "size",
    {"B": 1, "KB": 10**3, "KiB": 2**10, "MB": 10**6, "MiB": 2**20, "GB": 10**9, "GiB": 2**30},
    "64KiB",
    {
        "bytes": 1,
        "Kb": 10**3 // 8,  # a lower-case b means bits
        "Mb": 10**6 // 8,
        "Gb": 10**9 // 8,
        "Kbit": 10**3 // 8,
        "Mbit": 10**6 // 8,
        "Gbit": 10**9 // 8,
        "K": 10**3,
        "M": 10**6,
        "G": 10**9,
        "Ki": 2**10,
        "Mi": 2**20,
        "Gi": 2**30,
        "TB": 10**12,
        "TiB": 2**40,
    },
)

FRACTION_PATTERN = r"^\d+(\.\d+)? ?%$"


def parse_fraction(value: object) -> float:
    """Number in [0, 1] from a number in [0, 1] or a percentage such as "1%".

    Raises
    ------
    UnitError
        Neither of the two, or out of range.
    """
    hint = "use a number from 0 to 1 or a percentage, for example 0.01 or '1%'"
    if isinstance(value, int | float) and not isinstance(value, bool):
        fraction = float(value) if -1 <= value <= 2 else math.inf
    elif isinstance(value, str) and re.fullmatch(r"[+-]?" + FRACTION_PATTERN[1:-1], value, re.ASCII):
        check_digits(value)
        fraction = float(Fraction(value.rstrip("% ")) / 100)
    else:
        raise UnitError(f"cannot read {shown(value)} as a fraction", hint)
    if not 0 <= fraction <= 1:  # refuses NaN as well
        raise UnitError(f"{shown(value)} is not a fraction from 0 to 1", hint)
    return fraction


def format_fraction(fraction: float) -> str:
    """Exact percentage: 0.01 is "1%"."""
    text = f"{Decimal(repr(fraction)) * 100:f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text) + "%"


def transmit_time_ps(size_bytes: int, rate_bps: int) -> int:
    """Time a link is busy with `size_bytes`, rounded up so that no link is ever faster than its rate."""
    return -(-size_bytes * 8 * PS_PER_S // rate_bps)
