"""A network of diameter 2 between switches, near the most switches that ports allow."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any, ClassVar

import networkx as nx

from netfold.topologies.kind import Counts, Direct, Facts, Generated, ParameterError, count

_Element = tuple[int, ...]  # of a finite field: coefficients of a polynomial, the lowest power first


@dataclass(frozen=True, kw_only=True)
class SlimFly(Direct):
    """A network of diameter 2 between switches, near the most switches that their ports allow.

    Besta, Hoefler: Slim Fly: A Cost Effective Low-Diameter Network Topology, SC 2014, section II-B; the
    graphs are those of McKay, Miller and Širáň, Journal of Combinatorial Theory B 74, 1998, as Hafner
    (Discrete Mathematics 281, 2004) builds them. q is a prime power, q = 4w + δ with δ of −1, 0 or 1; the
    field GF(q) has a primitive element ξ. Switches are (0, x, y) and (1, m, c) with x, y, m, c of GF(q):
    (0, x, y) and (1, m, c) are linked if y = m·x + c, (0, x, y) and (0, x, y') if y − y' is in a set X of
    powers of ξ, and (1, m, c) and (1, m, c') if c − c' is in a set X'. With p hosts on each switch:

    - hosts 2·q²·p, switches 2·q², each with (3·q − δ)/2 links to others (q = 5: 50 with 7, which is the
      Hoffman-Singleton graph; q = 17: 578 with 25);
    - links 2·(2·q²·p + q²·(3·q − δ)/2), both directions counted;
    - diameter 4 hops;
    - the paper puts as many hosts on a switch as half of its links, rounded up: more than that, and uniform
      traffic fills the links between switches first;
    - paths and bisection have no closed form.
    """

    kind: ClassVar[str] = "slim_fly"
    growing: ClassVar[tuple[str, ...]] = ("hosts_per_switch", "q")

    q: int = count("A prime power that is not 2, such as 3, 4, 5, 7, 8, 9, 11, 13, 16, 17 or 19.", least=3)

    @classmethod
    def of_hosts(cls, hosts: int, **links: Any) -> Iterator[Generated]:
        for q in range(3, math.isqrt(hosts // 2) + 1):
            yield cls(q=q, hosts_per_switch=-(-hosts // (2 * q**2)), **links)

    def check(self) -> None:
        """There is a field of q elements.

        Raises
        ------
        ParameterError
            q is no prime power.
        """
        prime, _, rest = _factored(self.q)
        if rest > 1:
            raise ParameterError(
                "q", f"{self.kind}: q is {self.q}, must be a power of a prime; {prime} divides it, not alone"
            )

    @property
    def degree(self) -> int:
        """Links of a switch to others."""
        return (3 * self.q - _delta(self.q)) // 2

    def counts(self) -> Counts:
        return self.counts_of(2 * self.q**2, self.q**2 * self.degree)

    def facts(self) -> Facts:
        """The counts and the diameter; nothing else has a closed form."""
        return Facts(*self.counts(), 4, None, None)

    def graph(self) -> nx.Graph:
        """Switches s0_x_y and s1_m_c: elements of the field are numbers whose digits are coefficients."""
        prime, degree, _ = _factored(self.q)
        powers = _powers_of_primitive(prime, degree, self.q)
        elements = list(product(range(prime), repeat=len(powers[0])))
        number = {element: index for index, element in enumerate(elements)}
        logarithm = {element: index for index, element in enumerate(powers)}

        def times(a: _Element, b: _Element) -> _Element:
            if a not in logarithm or b not in logarithm:  # zero is no power
                return elements[0]
            return powers[(logarithm[a] + logarithm[b]) % len(powers)]

        def add(a: _Element, b: _Element, sign: int = 1) -> _Element:
            return tuple((x + sign * y) % prime for x, y in zip(a, b, strict=True))

        generators = [{powers[exponent] for exponent in half} for half in _generator_exponents(self.q)]
        names = [f"s{side}_{x}_{y}" for side, x, y in product((0, 1), range(self.q), range(self.q))]
        inside = (
            (f"s{side}_{x}_{number[y]}", f"s{side}_{x}_{number[other]}")
            for side, x in product((0, 1), range(self.q))
            for y, other in combinations(elements, 2)
            if add(y, other, -1) in generators[side]
        )
        between = (
            (f"s0_{number[x]}_{number[add(times(m, x), c)]}", f"s1_{number[m]}_{number[c]}")
            for x, m, c in product(elements, repeat=3)
        )
        return self.build({name: {} for name in names}, [*inside, *between])


def _delta(q: int) -> int:
    return (q + 1) % 4 - 1


def _factored(number: int) -> tuple[int, int, int]:
    """The least prime factor of a number, how often it divides the number, and what is left then."""
    prime = next((factor for factor in range(2, math.isqrt(number) + 1) if number % factor == 0), number)
    exponent = 0
    while number % prime == 0:
        number, exponent = number // prime, exponent + 1
    return prime, exponent, number


def _powers_of_primitive(prime: int, degree: int, size: int) -> list[_Element]:
    """All powers of a primitive element of GF(prime^degree), from its zeroth: every element but zero.

    The field is that of polynomials modulo one of this degree, and the element is their variable: the first
    polynomial is taken for which its powers do not repeat before all are there.
    """
    unit = (1, *[0] * (degree - 1))
    for reduction in product(range(prime), repeat=degree):  # what the variable to this degree is
        powers, element = [unit], _next_power(unit, reduction, prime)
        while any(element) and element != unit:
            powers.append(element)
            element = _next_power(element, reduction, prime)
            if len(powers) == size:
                break
        if len(powers) == size - 1:
            return powers
    raise AssertionError("every finite field has a primitive polynomial")


def _next_power(element: _Element, reduction: _Element, prime: int) -> _Element:
    *lower, highest = element
    return tuple((low + highest * part) % prime for low, part in zip((0, *lower), reduction, strict=True))


def _generator_exponents(q: int) -> tuple[list[int], list[int]]:
    """The exponents of ξ in X and in X'."""
    half = (q + 1) // 2
    first = [*range(0, q - 1, 2)] if _delta(q) >= 0 else [*range(0, half - 1, 2), *range(half - 1, q - 1, 2)]
    return first, [(exponent + 1) % (q - 1) for exponent in first]
