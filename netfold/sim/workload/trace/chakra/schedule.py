"""The nodes of an execution trace in time: when each all-reduce could begin, if communication took no time.

A step ends with its all-reduces: a computation that needs the result of one belongs to the next step. In a
step there is one processor and one accelerator. Each does one computation after the other, in the order in
which they can begin, then by their ids; nodes for the processor (`is_cpu_op`) and for the accelerator
overlap. This is how ASTRA-sim issues nodes. Durations are those of the trace; its start times are not read,
because they contain the communication of the machine that was traced.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from netfold.sim.workload.trace.chakra.read import ALL_REDUCE, COLLECTIVE, RECEIVE, SEND, Node

_COMMUNICATION = (SEND, RECEIVE, COLLECTIVE)


class Reduction(NamedTuple):
    """An all-reduce of a step."""

    node: Node
    ready_us: int  # from the begin of the step


class TracedStep(NamedTuple):
    """One step of a trace."""

    reductions: tuple[Reduction, ...]  # by the time at which they can begin
    forward_us: int  # up to the computation just before the first all-reduce
    end_us: int  # of the last computation


def is_all_reduce(node: Node) -> bool:
    """Whether a node sums gradients."""
    return node.kind == COLLECTIVE and node.comm_type == ALL_REDUCE and bool(node.comm_bytes)


def steps_of(nodes: Sequence[Node]) -> list[TracedStep]:
    """The steps, in order; the last has no all-reduces if computations follow those of the last step.

    Raises
    ------
    ValueError
        A node depends on one that is not there, or on itself.
    """
    known = {node.number: node for node in nodes}
    order = _in_order(nodes, known)
    step_of: dict[int, int] = {}
    members: dict[int, list[Node]] = defaultdict(list)
    for node in order:
        step = 0
        for number in node.after:
            is_next = is_all_reduce(known[number]) and node.kind not in _COMMUNICATION
            step = max(step, step_of[number] + is_next)
        step_of[node.number] = step
        members[step].append(node)
    return [_timed(members[step]) for step in sorted(members)]


def _in_order(nodes: Sequence[Node], known: Mapping[int, Node]) -> list[Node]:
    """The nodes, each after those that it depends on."""
    waiting = {}
    followers: dict[int, list[int]] = defaultdict(list)
    for node in nodes:
        for number in node.after:
            if number not in known:
                raise ValueError(f"node {node.number} depends on node {number}, which is not there")
            followers[number].append(node.number)
        waiting[node.number] = len(node.after)
    ready = [number for number, count in waiting.items() if not count]
    order = []
    for number in ready:  # it grows
        order.append(known[number])
        for follower in followers[number]:
            waiting[follower] -= 1
            if not waiting[follower]:
                ready.append(follower)
    if len(order) < len(nodes):
        stuck = min(number for number, count in waiting.items() if count)
        raise ValueError(f"node {stuck} depends, by way of others, on itself")
    return order


def _timed(members: Sequence[Node]) -> TracedStep:
    """Times of one step, whose nodes wait for nothing of the steps before it."""
    own = {node.number: node for node in members}
    waiting = {node.number: sum(number in own for number in node.after) for node in members}
    followers: dict[int, list[int]] = defaultdict(list)
    for node in members:
        for number in node.after:
            followers[number].append(node.number)
    queue = [(0, number) for number, count in waiting.items() if not count]
    heapq.heapify(queue)
    begin_us: dict[int, int] = dict.fromkeys(own, 0)
    free_us = {True: 0, False: 0}  # the processor, the accelerator
    reductions, spans = [], []
    while queue:
        ready_us, number = heapq.heappop(queue)
        node, end_us = own[number], ready_us
        if is_all_reduce(node):
            reductions.append(Reduction(node, ready_us))
        elif node.kind not in _COMMUNICATION and node.duration_us:
            start_us = max(ready_us, free_us[node.is_cpu])
            end_us = free_us[node.is_cpu] = start_us + node.duration_us
            spans.append((end_us, start_us))
        for follower in followers[number]:
            begin_us[follower] = max(begin_us[follower], end_us)
            waiting[follower] -= 1
            if not waiting[follower]:
                heapq.heappush(queue, (begin_us[follower], follower))
    reductions.sort(key=lambda one: (one.ready_us, one.node.number))
    end_us = max((end for end, _ in spans), default=0)
    first_us = reductions[0].ready_us if reductions else end_us
    forward_us = max((start for end, start in spans if end == first_us), default=first_us)
    return TracedStep(tuple(reductions), min(forward_us, first_us), end_us)
