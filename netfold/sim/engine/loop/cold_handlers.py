"""Handlers that are compiled apart from the event loop, because they are rare (see `cold_calls.py`)."""

from __future__ import annotations

from functools import cache

from numba import types

from netfold.kernels.compiled import address_of
from netfold.sim.engine.links.faults import apply_faults, leave_line
from netfold.sim.engine.loop.timers import on_single_event
from netfold.sim.engine.observe.event_log import log_packet
from netfold.sim.engine.schedules.progress import answer, begin, go_on, on_delivered, on_merge_end
from netfold.sim.engine.switches.aggregate import add_narrow_lanes, on_parent_result, take_lifted
from netfold.sim.engine.switches.atp_server import on_atp_forward
from netfold.sim.engine.switches.atp_switch import on_atp_switch
from netfold.sim.engine.switches.slot_timer import send_empty_result, update_slot_timer
from netfold.sim.engine.tables.cold_calls import world_at
from netfold.sim.engine.tables.world import (
    ADD_LANES,
    ANSWER,
    APPLY_FAULTS,
    AT_SERVER,
    AT_SWITCH,
    AT_WORKER,
    BEGIN,
    DELIVERED,
    GO_ON,
    LEAVE_LINE,
    LIFT,
    PARENT_RESULT,
    SEND_EMPTY_RESULT,
    SINGLE,
    UPDATE_SLOT_TIMER,
)
from netfold.sim.engine.transports.atp_worker import on_atp_result, on_atp_timer

_SIGNATURE = types.void(*[types.int64] * 5)


def _rare(at: int, what: int, row: int, first: int, second: int) -> None:
    world_at(at).clock[0].unfinished += 1  # an error in here is printed, not raised: `Engine.run` checks
    if what == APPLY_FAULTS:
        apply_faults(at, row, first)
    elif what == LIFT:
        take_lifted(at, row, first, second)
    elif what == ADD_LANES:
        add_narrow_lanes(at, row, first)
    elif what == UPDATE_SLOT_TIMER:
        update_slot_timer(at, row, first, second)
    elif what == SEND_EMPTY_RESULT:
        send_empty_result(at, row)
    elif what == PARENT_RESULT:
        on_parent_result(at, row)
    elif what == SINGLE:
        on_single_event(at, row, first)
    elif what == LEAVE_LINE:
        leave_line(at, row)
    else:
        log_packet(at, row, first)
    world_at(at).clock[0].unfinished -= 1


def _atp(at: int, what: int, row: int, first: int, second: int) -> None:
    world_at(at).clock[0].unfinished += 1
    if what == AT_SWITCH:
        on_atp_switch(at, row)
    elif what == AT_SERVER:
        on_atp_forward(at, row)
    elif what == AT_WORKER:
        on_atp_result(at, row)
    else:
        on_atp_timer(at, row)
    world_at(at).clock[0].unfinished -= 1


def _schedules(at: int, what: int, row: int, first: int, second: int) -> None:
    world_at(at).clock[0].unfinished += 1
    if what == GO_ON:
        go_on(at)
    elif what == DELIVERED:
        on_delivered(at, row)
    elif what == BEGIN:
        begin(at, row, first)
    elif what == ANSWER:
        answer(at, row, first, second)
    else:
        on_merge_end(at, row, first)
    world_at(at).clock[0].unfinished -= 1


@cache
def rare_handler() -> int:
    """Address of the handler of faults, trees, timers and the log."""
    return address_of(_rare, _SIGNATURE)


@cache
def atp_handler() -> int:
    """Address of the handler of ATP."""
    return address_of(_atp, _SIGNATURE)


@cache
def schedules_handler() -> int:
    """Address of the handler of schedules."""
    return address_of(_schedules, _SIGNATURE)
