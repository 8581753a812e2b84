"""Rules of fusion in plain Python: every division tried, and the greedy rules as they are published.

Layers are numbered 1 … L in back-propagation order here, with lists of times and sizes; a division is the
list of the last layers of its groups. All times are plain numbers of any one unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

Time = Callable[[float], float]


def divisions(layers: int) -> Iterator[list[int]]:
    """All divisions into neighbours, 2^(L − 1) of them."""
    for count in range(layers):
        for cuts in combinations(range(1, layers), count):
            yield [*cuts, layers]


def step(
    ends: list[int], backward: list[float], sizes: list[int], stages: tuple[Time, Time, Time], forward: float
) -> float:
    """The two machines, event by event; the device decodes after all that it computes and encodes."""
    encode, network, decode = stages
    device, free, first = forward, 0.0, 0
    waiting: list[tuple[float, float]] = []  # arrival and time of a decoding
    for end in ends:
        group = range(first, end)
        elements = sum(sizes[layer] for layer in group)
        for layer in group:
            device += backward[layer]
        device += encode(elements)
        free = max(free, device) + network(elements)
        waiting.append((free, decode(elements)))
        first = end
    for arrival, work in waiting:
        device = max(device, arrival) + work
    return device


def best(
    backward: list[float], sizes: list[int], stages: tuple[Time, Time, Time], forward: float = 0.0
) -> float:
    return min(step(ends, backward, sizes, stages, forward) for ends in divisions(len(sizes)))


def best_linear(
    backward: list[float], sizes: list[int], encode: tuple[float, float], network: tuple[float, float]
) -> float:
    """The shortest step at linear costs without decoding, over prefixes and numbers of groups.

    F[j, q] = min over i < j of max(F[i, q − 1], Tb(1..j) + q a_c + b_c N(1..j)) + a_x + b_x N(i + 1..j).
    """
    layers = len(sizes)
    reached = [0.0]
    total = [0]
    for time, size in zip(backward, sizes, strict=True):
        reached.append(reached[-1] + time)
        total.append(total[-1] + size)
    shortest = {(0, 0): 0.0}
    for groups in range(1, layers + 1):
        for j in range(groups, layers + 1):
            compute = reached[j] + groups * encode[0] + encode[1] * total[j]
            shortest[j, groups] = min(
                max(shortest[i, groups - 1], compute) + network[0] + network[1] * (total[j] - total[i])
                for i in range(groups - 1, j)
                if (i, groups - 1) in shortest
            )
    return min(shortest[layers, groups] for groups in range(1, layers + 1))


def mg_wfbp(backward: list[float], sizes: list[int], start: float, per_element: float) -> list[int]:
    """MG-WFBP: the last layers of its groups.

    As the authors' code works: every layer has a communication time, 0 once it is merged into the next, and
    the starts of all communications are computed again after each merge.
    """
    layers = len(sizes)
    size = list(sizes)
    ready = [sum(backward[: layer + 1]) for layer in range(layers)]
    times = [start + per_element * one for one in size]

    def starts() -> list[float]:
        found = [ready[0]]
        for layer in range(1, layers):
            found.append(max(found[layer - 1] + times[layer - 1], ready[layer]))
        return found

    ends = []
    for layer in range(layers - 1):
        begin = starts()[layer]
        following = ready[layer + 1]
        is_merged = False
        if following < begin + times[layer]:
            is_merged = begin > following or following - begin < start
        if is_merged:
            size[layer + 1] += size[layer]
            size[layer], times[layer] = 0, 0.0
            times[layer + 1] = start + per_element * size[layer + 1]
        else:
            ends.append(layer + 1)
    return [*ends, layers]


def omgs(backward: list[float], sizes: list[int], encode: Time, network: Time) -> list[int]:
    """OMGS-SGD: the last layers of its groups; everything is computed from the groups so far, each time."""
    layers = len(sizes)
    groups: list[list[int]] = [[0]]
    for layer in range(1, layers):
        device = free = begin = encoded = 0.0
        for group in groups:
            device += sum(backward[one] for one in group)
            elements = sum(sizes[one] for one in group)
            device += encode(elements)
            encoded, begin = device, max(free, device)
            free = begin + network(elements)
        own = sum(sizes[one] for one in groups[-1])
        both = own + sizes[layer]
        wait = backward[layer] + encode(both) - encode(own) - encode(sizes[layer]) - (begin - encoded)
        saving = network(own) + network(sizes[layer]) - network(both)
        if wait < saving:
            groups[-1].append(layer)
        else:
            groups.append([layer])
    return [group[-1] + 1 for group in groups]
