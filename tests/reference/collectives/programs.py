"""What every worker does in each collective, step by step, as the papers write it.

Every all-reduce is a reduction, after which shares of the message are held in full by some member, and a
distribution. What arrives is the first operand of a merge, what the worker has the second.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import count, pairwise
from typing import Any

from tests.reference.collectives.hosts import WHOLE, Hosts, Program, Receive, Share

Held = list[tuple[Share, Any]]  # shares, and what was merged of each
_numbers = count()


@dataclass(frozen=True)
class Side:
    """One member's view of a group that carries a share of the message."""

    hosts: Hosts
    name: tuple[Any, ...]  # tells apart what is under way at the same time
    members: tuple[int, ...]
    at: int
    share: Share
    lanes: str = "none"  # "pair": messages between the same two workers share a window; "own": by `name` too
    merge_ps: Callable[[int], int] = lambda words: 0

    @property
    def rank(self) -> int:
        return self.members[self.at]

    def send(self, to: int, step: Any, share: Share, value: Any, lane: Any = ()) -> None:
        target = self.members[to]
        lanes = {"none": None, "pair": (self.rank, target), "own": (self.rank, target, lane)}
        self.hosts.send(self.rank, target, (*self.name, step), share, value, lanes[self.lanes])

    def receive(self, step: Any) -> Program:
        return (yield Receive((*self.name, step)))

    def merged(self, arriving: Any, own: Any, share: Share) -> Program:
        """Merge on the worker's device."""
        if time_ps := self.merge_ps(share.words(self.hosts.size)):
            yield time_ps
        return (arriving, own)


def parallel(hosts: Hosts, worker: int, programs: Sequence[Program]) -> Program:
    """Run programs of a worker side by side; returns what they return."""
    names = [("end", next(_numbers)) for _ in programs]

    def ending(program: Program, name: Any) -> Program:
        result = yield from program
        hosts._deliver(worker, name, result)

    for program, name in zip(programs, names, strict=True):
        hosts.run(worker, ending(program, name))
    results = []
    for name in names:
        result = yield Receive(name)
        results.append(result)
    return results


# Ring (Patarasuk and Yuan 2009)


def ring_reduce(side: Side, value: Any, pieces: int = 1) -> Program:
    """n − 1 steps: send a segment to the next, merge the one before it; end with one of everybody."""
    n, at = len(side.members), side.at
    segments = side.share.parts(n)
    lane = side.name[-1]  # its channel
    if n == 1:
        return [(side.share, value)]
    for piece, share in enumerate(segments[at].parts(pieces)):
        side.send((at + 1) % n, (0, piece), share, value, lane)
    held: Held = []
    for step in range(n - 1):
        for piece, share in enumerate(segments[(at - step - 1) % n].parts(pieces)):
            arriving = yield from side.receive((step, piece))
            total = yield from side.merged(arriving, value, share)
            if step < n - 2:
                side.send((at + 1) % n, (step + 1, piece), share, total, lane)
            else:
                held.append((share, total))
                if pieces > 1:  # the distribution of a piece need not wait for the next one
                    side.send((at + 1) % n, ("g", 0, piece), share, [(share, total)], lane)
    return held


def ring_gather(side: Side, pieces: int = 1) -> Program:
    """n − 1 steps: send on what arrives, until all segments have gone round."""
    n, at, lane = len(side.members), side.at, side.name[-1]
    segments = side.share.parts(n)
    found: Held = []
    for step in range(n - 1):
        for piece in range(pieces):
            arriving = yield from side.receive(("g", step, piece))
            found += arriving
            if step < n - 2:
                share = segments[(at - step) % n].parts(pieces)[piece]
                side.send((at + 1) % n, ("g", step + 1, piece), share, arriving, lane)
    return found


# Recursive halving and doubling (Thakur, Rabenseifner, Gropp 2005; what MPICH does)


def _core(n: int) -> list[int]:
    """The members that remain: of the first 2 r the odd ones, where r is what exceeds a power of two."""
    power = 1 << (n.bit_length() - 1)
    extra = n - power
    return [*range(1, 2 * extra, 2), *range(2 * extra, n)]


def _halves(side: Side) -> list[tuple[int, Share, Share]]:
    """Each step: with whom, what is kept, what is sent."""
    core = _core(len(side.members))
    new, share, steps = core.index(side.at), side.share, []
    distance = 1
    while distance < len(core):
        low, high = share.parts(2)
        kept, sent = (high, low) if new & distance else (low, high)
        steps.append((core[new ^ distance], kept, sent))
        share, distance = kept, 2 * distance
    return steps


def halving_reduce(side: Side, value: Any) -> Program:
    """Members without a place give all they have to the next; then halve, at distances 1, 2, 4 …"""
    if side.at not in _core(len(side.members)):
        side.send(side.at + 1, "fold", side.share, value)
        return []
    if side.at - 1 not in _core(len(side.members)) and side.at > 0:
        arriving = yield from side.receive("fold")
        value = yield from side.merged(arriving, value, side.share)
    share = side.share
    for step, (other, kept, sent) in enumerate(_halves(side)):
        side.send(other, ("h", step), sent, value)
        arriving = yield from side.receive(("h", step))
        value = yield from side.merged(arriving, value, kept)
        share = kept
    return [(share, value)]


def doubling_gather(side: Side, held: Held) -> Program:
    """The same steps backwards, with all that is held; then give it to the member without a place."""
    if side.at not in _core(len(side.members)):
        return (yield from side.receive("unfold"))
    for step, (other, kept, _) in reversed(list(enumerate(_halves(side)))):
        side.send(other, ("d", step), kept, held)
        held = held + (yield from side.receive(("d", step)))
    if side.at - 1 not in _core(len(side.members)) and side.at > 0:
        side.send(side.at - 1, "unfold", side.share, held)
    return held


# Two trees (Sanders, Speck, Träff 2009)


def in_order_tree(n: int) -> tuple[int, dict[int, list[int]]]:
    """Root and children of the tree that numbers places in order; leaves have even numbers, from 0 on."""
    children: dict[int, list[int]] = {}

    def build(first: int, end: int, height: int) -> int:
        """The root of places first … end − 1, in a perfect tree of that height that is cut off at the end."""
        root = first + (1 << height) - 1
        if root >= end:
            return build(first, end, height - 1)
        below = [build(first, root, height - 1)] if height else []
        if height and root + 1 < end:
            below.append(build(root + 1, end, height - 1))
        children[root] = below
        return root

    return build(0, n, n.bit_length() - 1), children


def tree_of(n: int, number: int) -> tuple[int, dict[int, list[int]]]:
    """Root and children by member: tree 0 as it is; tree 1 mirrored, or shifted by one if n is odd."""
    root, children = in_order_tree(n)

    def member(place: int) -> int:
        if number == 0:
            return place
        return n - 1 - place if n % 2 == 0 else (place - 1) % n

    return member(root), {member(up): [member(one) for one in below] for up, below in children.items()}


def tree_threads(
    side: Side, number: int, pieces: Sequence[Share], middle: Callable[[Held], Program], value: Any
) -> list[Program]:
    """Merge piece after piece on the way up; pass on what comes down."""
    root, children = tree_of(len(side.members), number)
    sides = [replace(side, share=one, name=(*side.name, number, i)) for i, one in enumerate(pieces)]

    def up() -> Program:
        for one in sides:
            total = value
            for child in children[side.at]:
                arriving = yield from one.receive(("up", child))
                total = yield from one.merged(arriving, total, one.share)
            if side.at == root:
                one.hosts._deliver(side.rank, (*one.name, "top"), [(one.share, total)])
            else:
                (parent,) = (up for up, below in children.items() if side.at in below)
                one.send(parent, ("up", side.at), one.share, total, lane=("up", number))
            if not children[side.at]:
                yield  # a leaf's trees take turns
        return []

    def down(one: Side) -> Program:
        if side.at == root:
            held = yield from middle((yield from one.receive("top")))
        else:
            held = yield from one.receive(("down", side.at))
        for child in children[side.at]:
            one.send(child, ("down", child), one.share, held, lane=("down", number))
        return held

    return [*map(down, sides), up()]


# All of them, and hierarchies


@dataclass(frozen=True)
class Kind:
    """A collective between hosts."""

    name: str  # ring, halving_doubling, tree
    trees: int = 2
    pieces: int = 1
    channels: int = 1

    def threads(self, side: Side, middle: Callable[[Held], Program], value: Any) -> list[Program]:
        """What a member does side by side; `middle` turns shares of this group into shares of all."""
        if self.name == "ring":
            return [self._ring(self._channel(side, one), middle, value) for one in range(self.channels)]
        if self.name == "halving_doubling":
            return [_chained(side, halving_reduce, doubling_gather, middle, value)]
        assert self.name == "tree"
        halves = side.share.parts(self.trees)
        return [
            program
            for number, half in enumerate(halves)
            for program in tree_threads(side, number, half.parts(self.pieces), middle, value)
        ]

    def _channel(self, side: Side, channel: int) -> Side:
        """Even channels go forward, odd ones backward; channel c begins at member c."""
        n = len(side.members)
        places = [(channel + i) % n if channel % 2 == 0 else (channel - i) % n for i in range(n)]
        return replace(
            side,
            name=(*side.name, channel),
            members=tuple(side.members[place] for place in places),
            at=places.index(side.at),
            share=side.share.parts(self.channels)[channel],
        )

    def _ring(self, side: Side, middle: Callable[[Held], Program], value: Any) -> Program:
        held = yield from ring_reduce(side, value, self.pieces)

        def own() -> Program:
            whole = yield from middle(held)
            if self.pieces == 1 and len(side.members) > 1:
                share = side.share.parts(len(side.members))[(side.at + 1) % len(side.members)]
                side.send((side.at + 1) % len(side.members), ("g", 0, 0), share, whole, side.name[-1])
            return whole

        programs = [own(), ring_gather(side, self.pieces)]
        found = yield from parallel(side.hosts, side.rank, programs)
        return [one for part in found for one in part]

    def owners(self, members: int, share: Share) -> list[tuple[Share, int]]:
        if self.name == "ring":
            return [(one, (i - 1) % members) for i, one in enumerate(share.parts(members))]
        if self.name == "tree":
            return [(one, tree_of(members, number)[0]) for number, one in enumerate(share.parts(self.trees))]
        found = []
        for at in _core(members):
            own, new, distance = share, _core(members).index(at), 1
            while distance < len(_core(members)):
                own, distance = own.parts(2)[bool(new & distance)], 2 * distance
            found.append((own, at))
        return found


def _chained(
    side: Side,
    reduce: Callable[[Side, Any], Program],
    gather: Callable[[Side, Held], Program],
    middle: Callable[[Held], Program],
    value: Any,
) -> Program:
    held = yield from reduce(side, value)
    held = yield from middle(held)
    return (yield from gather(side, held))


def _unchanged(held: Held) -> Generator[Any, Any, Held]:
    return held
    yield


def all_reduce(side: Side, kind: Kind, value: Any) -> Program:
    found = yield from parallel(side.hosts, side.rank, kind.threads(side, _unchanged, value))
    return [one for held in found for one in held]


def flat(hosts: Hosts, workers: int, kind: Kind, **options: Any) -> None:
    for rank in range(workers):
        side = Side(hosts, ("flat",), tuple(range(workers)), rank, WHOLE, **options)
        _record(hosts, rank, kind.threads(side, _unchanged, rank))


def hierarchy(
    hosts: Hosts, groups: Sequence[Sequence[int]], inner: Kind, outer: Kind, blocks: int = 1, **options: Any
) -> None:
    """Reduce in every group, all-reduce every share among those who hold it, distribute in every group."""
    everything: dict[int, list[Program]] = {rank: [] for group in groups for rank in group}
    for block, share in enumerate(WHOLE.parts(blocks)):
        edges = sorted(
            {edge for group in groups for one, _ in inner.owners(len(group), share) for edge in one}
        )
        leaders = {
            Share(*edge): [
                next(
                    group[at] for one, at in inner.owners(len(group), share) if one.start <= edge[0] < one.end
                )
                for group in groups
            ]
            for edge in pairwise(edges)
        }
        for number, group in enumerate(groups):
            for at, rank in enumerate(group):
                side = Side(hosts, (block, number), tuple(group), at, share, lanes="pair", **options)
                middle = _across(side, block, leaders, outer)
                everything[rank] += inner.threads(side, middle, rank)
    for rank in sorted(everything):
        _record(hosts, rank, everything[rank])


def _across(
    side: Side, block: int, leaders: dict[Share, list[int]], outer: Kind
) -> Callable[[Held], Program]:
    def middle(held: Held) -> Program:
        programs = []
        for own, value in held:
            for share, members in leaders.items():
                if own.start <= share.start < own.end:
                    name = "across", block, share
                    one = replace(
                        side, name=name, members=tuple(members), at=members.index(side.rank), share=share
                    )
                    programs.append(all_reduce(one, outer, value))
        found = yield from parallel(side.hosts, side.rank, programs)
        return [one for part in found for one in part]

    return middle


def _record(hosts: Hosts, rank: int, programs: Sequence[Program]) -> None:
    """Start a worker's programs; note what it holds in the end."""

    def noting(program: Program) -> Program:
        hosts.results[rank] += yield from program

    hosts.start(rank, map(noting, programs))


# Messages that every worker gets whole, in chunks; a piece is named by its sender and number.


def _pieces(hosts: Hosts, sizes: Sequence[int], chunk_words: int) -> list[list[Share]]:
    """The chunks of each worker's message, as shares of the oracle's size; an empty message is one."""
    counts = [
        [min(chunk_words, size - first) for first in range(0, max(1, size), chunk_words)] for size in sizes
    ]
    return [[Share(Fraction(0), Fraction(words, hosts.size)) for words in chunks] for chunks in counts]


def all_gather(hosts: Hosts, sizes: Sequence[int], chunk_words: int) -> None:
    """Every worker sends its message to the next one, and passes on what comes, until it is back."""
    n, pieces = len(sizes), _pieces(hosts, sizes, chunk_words)

    def own(rank: int) -> Program:
        for number, share in enumerate(pieces[rank] if n > 1 else []):
            _send(hosts, rank, (rank + 1) % n, (rank, number), share)
        return
        yield

    def passes(rank: int, name: tuple[int, int]) -> Program:
        yield Receive(name)
        following = (rank + 1) % n
        if following != name[0]:
            _send(hosts, rank, following, name, pieces[name[0]][name[1]])

    for rank in range(n):
        names = [(owner, number) for owner in range(n) for number in range(len(pieces[owner]))]
        hosts.start(rank, [own(rank), *(passes(rank, name) for name in names if name[0] != rank)])


def through_a_server(hosts: Hosts, sizes: Sequence[int], chunk_words: int, order: Sequence[int]) -> None:
    """Every worker sends its message to a server, which sends it on to the others, in `order`."""
    n, pieces = len(sizes), _pieces(hosts, sizes, chunk_words)
    names = [(owner, number) for owner in range(n) for number in range(len(pieces[owner]))]

    def serve(name: tuple[int, int]) -> Program:
        yield Receive(name)
        for worker in order:
            if worker != name[0]:
                _send(hosts, n, worker, name, pieces[name[0]][name[1]])

    def work(rank: int) -> Program:
        for number, share in enumerate(pieces[rank]):
            _send(hosts, rank, n, (rank, number), share)
        for name in names:
            if name[0] != rank:
                yield Receive(name)

    hosts.start(n, [serve(name) for name in names])
    for rank in range(n):
        hosts.start(rank, [work(rank)])


def _send(hosts: Hosts, source: int, target: int, name: tuple[int, int], share: Share) -> None:
    hosts.send(source, target, name, share, None, (source, target))
