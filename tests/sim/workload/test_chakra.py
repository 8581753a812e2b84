"""Execution traces give the sizes of all-reduces and when they can begin, against hand-computed times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import netfold
from netfold.errors import DataError
from netfold.sim.workload import chakra as read
from netfold.sim.workload.chakra import numbers, read_nodes, steps_of, varint
from netfold.sim.workload.device_rooflines import Passes
from netfold.sim.workload.synthetic import SyntheticSpec
from netfold.sim.workload.workload_keys import ChakraTrace
from tests.examples import examples
from tests.sim.workload.traces import (
    COLLECTIVE,
    COMP,
    METADATA,
    SEND,
    Given,
    compute,
    data_parallel,
    et_bytes,
    field,
    message,
    number_bytes,
    reduce,
    write_all,
)

CHAIN = data_parallel(2, forward=[5, 7], weights=[11, 13], inputs=[0, 17], sizes=[4000, 80])


def spec_of(folder: Path, nodes: list[Given], **options: Any) -> SyntheticSpec:
    path = folder / "given.et"
    path.write_bytes(et_bytes(nodes))
    return ChakraTrace(path="given.et", **options).resolved(folder, 1, 1)


def passes_of(spec: SyntheticSpec, step: int = 0, workers: int = 1) -> Passes:
    """What the last worker has of a step."""
    found = spec.workload(workers, 1).recorded(step, workers - 1)
    assert found is not None
    return found


def test_every_form_of_a_trace_is_the_same(tmp_path: Path) -> None:
    nodes = [
        *CHAIN,
        Given(90, "told", METADATA),
        Given(91, "ctrl", COMP, (), (90, 0), 3, (("is_cpu_op", False), ("rf_id", -1), ("op_schema", ""))),
        reduce(92, "ümlaut", 2**40, 91, group="7"),
    ]
    first, *others = [read_nodes(path) for path in write_all(tmp_path, nodes)]

    assert [node.number for node in first] == [node.number for node in nodes]
    assert [node.duration_us for node in first] == [node.duration_us for node in nodes]
    assert [set(node.after) for node in first] == [{*node.data_deps, *node.ctrl_deps} for node in nodes]
    last = first[-1]
    assert (last.name, last.comm_bytes, last.comm_type, last.group) == ("ümlaut", 2**40, 0, "7")
    assert [node.is_cpu for node in first[-2:]] == [False, True]
    for other in others:
        assert [node._replace(after=()) for node in other] == [node._replace(after=()) for node in first]
        assert [set(node.after) for node in other] == [set(node.after) for node in first]


def test_a_data_parallel_trace_has_the_times_of_its_layers(tmp_path: Path) -> None:
    """Forward 5 + 7, then 13 for layer 1, whose all-reduce can begin; 17 and 11 more for layer 0."""
    spec = spec_of(tmp_path, CHAIN)

    assert [(one.name, one.elements) for one in spec.tensors] == [("layer1", 20), ("layer0", 1000)]
    assert spec.held_steps == 2
    workload = spec.workload(3, 1)
    for step, workers in ((0, 1), (1, 3), (2, 2)):
        ready = {"layer1": 13 * 10**6, "layer0": 41 * 10**6}
        assert passes_of(spec, step, workers) == Passes(12 * 10**6, (13 + 17 + 11) * 10**6, ready)
    assert [bucket.elements for bucket in workload.buckets] == [20, 1000]
    assert [bucket.ready_share for bucket in workload.buckets] == [13 / 41, 1.0]
    assert spec.notes == ()


def test_a_processor_and_an_accelerator_overlap(tmp_path: Path) -> None:
    """Two launches of 4 µs each on the processor; kernels of 10 µs follow them on the accelerator."""
    nodes = [
        compute(0, 4),
        compute(1, 10, 0, on_cpu=False),
        compute(2, 4, 0),
        compute(3, 10, 2, on_cpu=False),
        reduce(4, "early", 400, 1),
        reduce(5, "late", 400, 3),
    ]
    ready = {"early": 10 * 10**6, "late": 20 * 10**6}

    # forward is up to the kernel that makes the first gradient
    assert passes_of(spec_of(tmp_path, nodes)) == Passes(4 * 10**6, 20 * 10**6, ready)


def test_an_optimizer_belongs_to_the_next_step(tmp_path: Path) -> None:
    """The last one has no step after it and is told."""
    nodes = [
        compute(0, 10),
        reduce(1, "a", 8, 0),
        compute(2, 100, 1),  # the optimizer
        compute(3, 10, 2),
        reduce(4, "a", 8, 3),
        compute(5, 100, 4),
    ]
    spec = spec_of(tmp_path, nodes)

    both = [passes_of(spec, step) for step in range(2)]
    assert [one.forward_ps + one.backward_ps for one in both] == [10 * 10**6, 110 * 10**6]
    assert spec.notes == ("given.et: 100 µs of computations after the last all-reduce are left out",)


def test_what_is_not_replayed_is_told(tmp_path: Path) -> None:
    nodes = [
        Given(0, "gather", COLLECTIVE, (), (), 0, (("comm_type", 2), ("comm_size", 64))),
        Given(1, "send", SEND, (0,), (), 5),
        reduce(2, "a", 8, 1),
        reduce(3, "nothing", 0, 1),
    ]
    spec = spec_of(tmp_path, nodes)

    assert spec.elements == 2
    assert spec.notes == (
        "given.et: 3 communications are no all-reduces of gradients: they take no time",
        "given.et: has no compute times (duration_micros): all gradients are ready at once",
    )


def test_groups_are_chosen(tmp_path: Path) -> None:
    nodes = [compute(0, 3), reduce(1, "a", 8, 0, group="data"), reduce(2, "b", 16, 0, group="tensor")]

    with pytest.raises(DataError, match="of 2 process groups") as caught:
        spec_of(tmp_path, nodes)
    assert "data, tensor" in caught.value.hint
    assert [one.name for one in spec_of(tmp_path, nodes, group="tensor").tensors] == ["b"]
    with pytest.raises(DataError, match="no all-reduce of the group 'pipe'"):
        spec_of(tmp_path, nodes, group="pipe")


def test_names_are_told_apart_and_elements_have_the_bytes_that_are_given(tmp_path: Path) -> None:
    nodes = [compute(0, 3), reduce(1, "same", 8, 0), reduce(2, "same", 8, 0), reduce(3, "", 10, 0)]
    spec = spec_of(tmp_path, nodes, element_bytes=2)

    assert [one.name for one in spec.tensors] == ["same#0", "same#1", "all-reduce#2"]
    assert spec.elements == 13
    with pytest.raises(DataError, match="no whole elements of 4 bytes"):
        spec_of(tmp_path, nodes)


REFUSED: dict[str, tuple[list[Given], str]] = {
    "no all-reduce": ([compute(0, 3)], "has no all-reduce"),
    "no such dependency": ([compute(0, 3, 7), reduce(1, "a", 4, 0)], "node 7, which is not there"),
    "a circle": ([compute(0, 3, 1), compute(1, 3, 0), reduce(2, "a", 4, 0)], "node 0 depends, by way of"),
    "itself": ([compute(4, 3, 4), reduce(5, "a", 4)], "node 4 depends, by way of others, on itself"),
    "an id twice": ([compute(0, 3), compute(0, 3)], "two nodes have the id 0"),
    "steps that differ": (
        [compute(0, 3), reduce(1, "a", 8, 0), compute(2, 3, 1), reduce(3, "a", 16, 2)],
        "step 1 sums 16 bytes, step 0 8",
    ),
    "a negative size": ([compute(0, 3), reduce(1, "a", -4, 0)], "comm_size of node 1 must be a whole number"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_traces_that_cannot_be_replayed_are_refused(tmp_path: Path, what: str) -> None:
    nodes, told = REFUSED[what]

    with pytest.raises(DataError) as caught:
        spec_of(tmp_path, nodes)

    assert told in str(caught.value)
    assert "given.et" in str(caught.value)


NODE = b'{"workload_graph": [{"Id": 0, "NodeType": 4, "%s": %s}]}'
FOREIGN: dict[str, tuple[str, bytes, str]] = {
    "another suffix": ("x.bin", b"", "must be a .et, .et.gz or .json file"),
    "nothing": ("x.et", b"", "has no nodes"),
    "cut in a message": ("x.et", et_bytes(CHAIN)[:-1], "ends inside a message"),
    "text": ("x.et", b"hello, this is no protobuf at all" * 9, "is no part of an execution trace"),
    "another schema": ("x.et", message(field(1, b"1")) + message(field(1, b"name")), "is no number"),
    "no metadata": ("x.et", message(field(7, 1)), "does not begin with GlobalMetadata"),
    "a broken gzip": ("x.et.gz", b"\x1f\x8bbroken", "damaged gzip file"),
    "broken JSON": ("x.json", b'{"version": "1"}{"id": ', "is not JSON"),
    "an array": ("x.json", b"[]", "is not JSON of an execution trace"),
    "empty JSON": ("x.json", b" ", "is empty"),
    "PyTorch's own": ("x.json", b'{"schema": "1.1.0", "nodes": []}', "chakra_converter"),
    "no such type": ("x.json", b'{"version": "1"}{"id": "1", "type": "SLEEP"}', "a node cannot be read"),
    **{
        f"an infinite {key}": ("x.json", NODE % (key.encode(), value), "a node cannot be read")
        for key, value in {"Id": b"1e999", "NodeType": b"Infinity", "data_deps": b"[-1e999]"}.items()
    },
    "an infinite id of the other form": ("x.json", b'{"version": "1"}{"id": 1e999}', "a node cannot be read"),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_foreign_and_damaged_files_are_refused(tmp_path: Path, what: str) -> None:
    name, content, told = FOREIGN[what]
    (tmp_path / name).write_bytes(content)

    with pytest.raises(DataError) as caught:
        read_nodes(tmp_path / name)

    assert told in str(caught.value)


def test_limits_hold_just_inside_and_not_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, longest = tmp_path / "x.et", tmp_path / "longest.et"
    path.write_bytes(et_bytes(CHAIN))
    longest.write_bytes(et_bytes([compute(0, 10**12)]))
    monkeypatch.setattr(read, "NODES_MAX", len(CHAIN))
    monkeypatch.setattr(read, "FILE_BYTES_MAX", path.stat().st_size)
    assert (len(read_nodes(path)), read_nodes(longest)[0].duration_us) == (len(CHAIN), 10**12)
    longest.write_bytes(et_bytes([compute(0, 10**12 + 1)]))
    with pytest.raises(DataError, match="lasts"):
        read_nodes(longest)
    monkeypatch.setattr(read, "NODES_MAX", len(CHAIN) - 1)
    with pytest.raises(DataError, match=f"more than {len(CHAIN) - 1} nodes"):
        read_nodes(path)
    monkeypatch.setattr(read, "FILE_BYTES_MAX", path.stat().st_size - 1)
    with pytest.raises(DataError, match="too large"):
        read_nodes(path)
    (zipped,) = (one for one in write_all(tmp_path, CHAIN) if one.suffix == ".gz")
    with pytest.raises(DataError, match="bytes unpacked"):
        read_nodes(zipped)


@examples(100)
@given(st.lists(st.integers(0, 2**64 - 1)))
def test_numbers_come_back(values: list[int]) -> None:
    data = b"".join(map(number_bytes, values))

    assert numbers(2, data) == values
    with pytest.raises(ValueError):
        varint(data[:-1] + b"\xff" if data else b"", max(0, len(data) - 1))


@st.composite
def graphs(draw: st.DrawFn) -> list[Given]:
    """Computations that depend on earlier ones, each maybe with an all-reduce after it, all of one step."""
    nodes: list[Given] = []
    computations: list[int] = []
    for _ in range(draw(st.integers(1, 12))):
        after = draw(st.lists(st.sampled_from(computations), unique=True)) if computations else []
        on_cpu = draw(st.booleans())
        nodes.append(compute(len(nodes), draw(st.integers(0, 50)), *after, on_cpu=on_cpu))
        computations.append(nodes[-1].number)
        if draw(st.booleans()):
            nodes.append(reduce(len(nodes), "r", 4, nodes[-1].number))
    return nodes


@examples(100)
@given(graphs())
def test_times_are_between_the_longest_path_and_all_work(nodes: list[Given]) -> None:
    """No all-reduce begins before the longest path to it, and none after all computations in a row."""
    read_ones = []
    for node in nodes:
        told = dict(node.attributes)
        sums = told.get("comm_type"), told.get("comm_size")
        is_cpu = bool(told.get("is_cpu_op", True))
        read_ones.append(read.TraceNode(*node[:4], node.duration_us, is_cpu, *sums))
    path_us: dict[int, int] = {}
    for one in nodes:
        path_us[one.number] = one.duration_us + max((path_us[dep] for dep in one.data_deps), default=0)
    (step,) = steps_of(read_ones)
    all_us = sum(one.duration_us for one in nodes)
    by_device = [sum(one.duration_us for one in read_ones if one.is_cpu == which) for which in (True, False)]

    assert len(step.reductions) == sum(one.kind == COLLECTIVE for one in nodes)
    for own in step.reductions:
        assert path_us[own.node.number] <= own.ready_us <= all_us
        assert own.ready_us <= step.end_us
        assert step.forward_us <= own.ready_us
    assert max(*by_device, *path_us.values()) <= step.end_us <= all_us


def test_a_run_replays_the_times_with_synthetic_values(tmp_path: Path) -> None:
    (tmp_path / "dp.et").write_bytes(et_bytes(CHAIN))
    (tmp_path / "dp.yaml").write_text(
        "{name: dp, topology: {kind: star, hosts: 2}, workers: 2, codec: {kind: none}, "
        "collective: {kind: ring}, workload: {kind: chakra, path: dp.et, density: 10%}}"
    )

    run = netfold.run(str(tmp_path / "dp.yaml"), out=str(tmp_path / "runs"))

    assert run.verdict == "pass"
    steps = run.steps
    assert (steps["forward_end_ps"] - steps["start_ps"]).to_list() == [12 * 10**6] * 2
    assert (steps["backward_end_ps"] - steps["forward_end_ps"]).to_list() == [41 * 10**6] * 2
    assert (steps["aggregation_start_ps"] - steps["forward_end_ps"]).to_list() == [13 * 10**6] * 2
    assert run.rounds["elements"].to_list() == [20, 1000] * 2
    assert (run.rounds["nonzeros"][:2].sum(), run.rounds["nonzeros"][2:].sum()) == (102, 102)
