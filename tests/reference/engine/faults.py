"""What strikes packets on links, in plain Python: the section "Faults" of sim/engine/README.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from netfold.homomorphic.kernels.keyed import mix_plain
from netfold.sim.engine.interface import Fate, Rule

DRAW_OF_FATE = 32  # plus the fate: what a packet's key is mixed with
DRAW_WORD, DRAW_BIT, DRAW_COPY = 40, 41, 42
KEY_CHAIN = 19


class Faults:
    """The rules of one network, and how many packets each struck."""

    def __init__(self, rules: Sequence[Rule], seed: int) -> None:
        self.rules = rules
        self.seed = seed
        self.struck_packets = [0] * len(rules)
        self.states: dict[tuple[int, int], list[bool]] = {}  # by rule and link: what packets found, "bad"

    def strike(self, link: int, key: int, hop: int, now_ps: int) -> Rule | None:
        """The rule that strikes a packet on its hop number `hop`, None if it gets through unharmed."""
        for number, rule in self._counting(link, now_ps):
            probability = rule.probability
            if rule.burst and not self._is_bad(number, link):
                probability = rule.burst.loss_good
            if draw(rule.fate, key, hop) < int(probability * 2.0**64):  # exact: times a power of two
                self.struck_packets[number] += 1
                return rule
        return None

    def _is_bad(self, number: int, link: int) -> bool:
        """Whether the next packet finds a link's chain in its bad state."""
        burst = self.rules[number].burst
        assert burst is not None
        states = self.states.setdefault((number, link), [])
        chance = mix_plain(self.seed, KEY_CHAIN, number, link, len(states))
        if not states:
            is_bad = chance < int(burst.bad_share * 2.0**64)
        elif states[-1]:
            is_bad = chance < 2**64 - 1 - min(2**64 - 1, int(burst.bad_to_good * 2.0**64))
        else:
            is_bad = chance < int(burst.good_to_bad * 2.0**64)
        states.append(is_bad)
        return is_bad

    def _counting(self, link: int, now_ps: int) -> Iterator[tuple[int, Rule]]:
        """Rules that count on a link now: of each fate the first, in the order of all rules."""
        seen: set[Fate] = set()
        for number, rule in enumerate(self.rules):
            if link in rule.links and rule.from_ps <= now_ps < rule.until_ps and rule.fate not in seen:
                seen.add(rule.fate)
                yield number, rule


def draw(fate: Fate, key: int, hop: int) -> int:
    """64 bits that decide whether a fate strikes."""
    if fate is Fate.LOSS:
        return mix_plain(key, hop)
    return mix_plain(key, hop, DRAW_OF_FATE + fate)


def flipped(words: Sequence[int], key: int, hop: int) -> list[int]:
    """int32 words, one or more, with one bit of one of them inverted."""
    struck = list(words)
    index = mix_plain(key, hop, DRAW_WORD) % len(words)
    pattern = (struck[index] % 2**32) ^ (1 << mix_plain(key, hop, DRAW_BIT) % 32)
    struck[index] = pattern - 2**32 * (pattern >= 2**31)
    return struck


def copy_key(key: int, hop: int) -> int:
    """Key of the copy that DUPLICATE makes of a packet."""
    return mix_plain(key, DRAW_COPY, hop)
