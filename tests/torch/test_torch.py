"""Codecs in real training: results beside the simulator's, layouts, modes, failures."""

from __future__ import annotations

import gc
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import netfold
import netfold.torch
from netfold.errors import DataError
from netfold.homomorphic.codec import Decoded, codec_kinds
from netfold.homomorphic.codecs.exact import DenseExact
from netfold.homomorphic.merge import Merge
from netfold.sim.run.run import run_variant
from netfold.sim.scenario.load import load
from netfold.sim.workload.training import TrainingWorkload
from netfold.sim.workload.workload import Workload
from netfold.sim.workload.workload_keys import Training
from netfold.torch.exchange import BucketRounds, Fifo
from netfold.torch.hook_state import ParameterLayout, different, make_layout, parameter_names
from netfold.torch.wire import Wire, make_codec, support_of
from tests import ROOT
from tests.examples import nightly
from tests.sim.scenes import plan, write
from tests.torch import failures
from tests.torch.merges import every_merge
from tests.torch.modes import EXACT, MODES, every_training
from tests.torch.processes import free_port, returned, run, run_script
from tests.torch.trainings import Counting, hooked, train_as_simulated, weights_of, with_codec

README = ROOT / "netfold" / "torch" / "README.md"
KINDS = sorted(codec_kinds())


@pytest.fixture(scope="module", autouse=True)
def alone() -> Iterator[None]:
    """A process group of this process alone; before there is any, there can be no state."""
    with pytest.raises(DataError, match=r"torch\.distributed is not ready"):
        netfold.torch.State("packed")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def trained(kind: Any, **options: Any) -> tuple[nn.Module, nn.Module, netfold.torch.Report]:
    """A model before and after a step of one worker, and what it sent."""
    torch.manual_seed(0)
    before, model = nn.Linear(4, 3), nn.Linear(4, 3)
    model.load_state_dict(before.state_dict())
    ddp, state = with_codec(model, kind, **options)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1.0)
    ddp(torch.arange(1.0, 5.0)).sum().backward()
    optimizer.step()
    report = state.report()
    state.close()
    return before, model, report


@pytest.mark.parametrize("kind", KINDS)
def test_a_codec_works_as_the_table_says(kind: str) -> None:
    works = support_of(make_codec(kind, {})).works
    options = {"learning_rate": 0.5} if works == "with learning_rate" else {}

    if works == "yes" or options:
        before, model, report = trained(kind, **options)
        assert report.rounds.height == 1
        assert report.payload_bytes > 0
        pairs = zip(before.parameters(), model.parameters(), strict=True)
        assert not all(torch.equal(one, other) for one, other in pairs)
    if works != "yes":
        with pytest.raises(netfold.DataError, match=f"^{kind} needs .*, a communication hook does not know"):
            trained(kind)


def test_one_worker_alone_subtracts_its_own_gradient() -> None:
    before, model, report = trained("exact")

    assert torch.equal(model.weight, before.weight - torch.arange(1.0, 5.0))  # type: ignore[operator]
    assert torch.equal(model.bias, before.bias - 1)  # type: ignore[operator]
    assert report.gradient_bytes == 4 * 15
    assert report.compression == report.gradient_bytes / report.payload_bytes
    assert report.rounds.select("step", "bucket", "elements").rows() == [(0, 0, 15)]
    (line,) = [line.split("│") for line in str(report).splitlines() if line.startswith("│ ")]
    assert [cell.strip() for cell in line[2:5]] == ["1", "0.1 kB", f"{report.payload_bytes / 1e3:.1f} kB"]
    before, model, _ = trained(DenseExact(block_elements=64))  # a codec itself has its options
    assert torch.equal(model.bias, before.bias - 1)  # type: ignore[operator]
    before, model, _ = trained("exact", learning_rate=lambda step: 0.25 + step)
    assert torch.equal(model.bias, before.bias - 0.25)  # type: ignore[operator]


def test_a_learning_rate_is_rounded_after_it_is_divided() -> None:
    """As in the simulator: float32(0.01 / 3), which is not float32(0.01) / float32(3)."""
    wire = cast(Wire, SimpleNamespace(rank=0, workers=3))
    rounds = BucketRounds(make_codec("exact", {}), wire, 1, lambda step: 0.01)
    one = np.ones(1, np.float32)

    assert rounds.mean(Decoded(one, one), 0)[0] == np.float32(0.01 / 3) != np.float32(0.01) / np.float32(3)


@pytest.mark.parametrize(
    ("kind", "options", "text"),
    [
        ("packet", {}, "did you mean 'packed'?"),
        ("packed", {"valuse": "exact"}, "unknown key 'valuse'\n  did you mean 'values'?"),
        ("packed", {"values": "exakt"}, "values"),
        ("topk", {"share": 1.5}, "share"),
        ("topk", {"share": "much"}, "share: must be a number, found 'much'"),
        ("majority", {"share": 0.1}, "majority has no options"),
    ],
)
def test_options_have_the_errors_of_scenarios(
    tmp_path: Path, kind: str, options: dict[str, Any], text: str
) -> None:
    with pytest.raises(netfold.ScenarioError) as caught:
        netfold.torch.State(kind, **options)
    given = "".join(f", {name}: {value}" for name, value in options.items())
    with pytest.raises(netfold.ScenarioError) as expected:
        load(write(tmp_path), [f"codec={{kind: {kind}{given}}}"])

    assert text in str(caught.value)
    if "unknown key" not in text and "no options" not in text:  # in a file, `kind` is a key as well
        assert caught.value.hint == expected.value.hint
        assert caught.value.message == expected.value.message


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"bucket": "25 bananas"}, "25 bananas"),
        ({"bucket": 0}, "bucket is 0"),
        ({"parameters": nn.Linear(2, 2).parameters()}, "`parameters` has no names"),
        ({"parameters": 5}, "`parameters` has no names"),
    ],
)
def test_arguments_that_cannot_be_used(options: dict[str, Any], text: str) -> None:
    with pytest.raises(netfold.NetfoldError, match=text):
        netfold.torch.State("packed", **options)
    with pytest.raises(netfold.DataError, match="values: the codec is given with its options"):
        netfold.torch.State(DenseExact(), values="exact")
    with pytest.raises(netfold.DataError, match="apply fully_shard before"):
        netfold.torch.set_reduce_scatter(nn.Linear(2, 2), netfold.torch.State("packed"))


def test_a_state_is_for_one_model_and_sends_nothing_once_it_is_closed() -> None:
    state = netfold.torch.State("packed")
    models = [hooked(nn.Linear(2, 2), state) for _ in range(2)]

    with pytest.raises(netfold.RunError, match="give each model a state of its own"):
        sum(model(torch.ones(2)).sum() for model in models).backward()  # type: ignore[union-attr]
    ddp, closed = with_codec(nn.Linear(2, 2), "packed")
    closed.close()
    with pytest.raises(netfold.RunError, match="the state is closed"):
        ddp(torch.ones(2)).sum().backward()


def test_messages_without_words_are_not_counted() -> None:
    """As in a simulated run: the number of a message is the key of random draws."""
    model, state = with_codec(nn.Linear(2, 2), Counting())
    model(torch.ones(2)).sum().backward()

    assert state.state_dict()["messages"] == 1
    assert model.module.bias.grad.tolist() == [2.0, 2.0]  # and the server's count
    again = netfold.torch.State(Counting())
    again.load_state_dict(state.state_dict())
    assert again.state_dict()["server"]["answers"] == 1


def test_a_state_goes_on_where_it_was_saved_with_the_same_model() -> None:
    def gradient(model: Any, size: int = 4) -> list[float]:
        model.zero_grad()
        model(torch.arange(1.0, 1.0 + size)).sum().backward()
        return [value for own in model.parameters() for value in own.grad.reshape(-1).tolist()]

    ddp, state = with_codec(nn.Linear(4, 3), "topk", share=0.2)
    first, saved = gradient(ddp), state.state_dict()
    second = gradient(ddp)
    assert first != second  # which has what the first step held back
    again = netfold.torch.State("topk", share=0.2)
    again.load_state_dict(saved)
    assert (again.step, again.state_dict()["tensors"]) == (1, saved["tensors"])
    assert gradient(hooked(nn.Linear(4, 3), again)) == second
    other = netfold.torch.State("topk", share=0.2)
    other.load_state_dict(saved)
    with pytest.raises(DataError, match=r"the state that was loaded is of another model: "):
        gradient(hooked(nn.Linear(5, 3), other), 5)
    for wrong, text in (
        ({**saved, "worker": [1, 2]}, r"the state has the worker \[1, 2\], here are \[0, 1\]"),
        ({**saved, "step": None}, "the state cannot be loaded: TypeError"),
    ):
        with pytest.raises(DataError, match=text):
            state.load_state_dict(wrong)


@pytest.mark.parametrize("options", [{}, {"find_unused_parameters": True, "bucket_cap_mb": 1e-5}])
def test_buckets_do_not_depend_on_those_of_ddp(options: dict[str, Any]) -> None:
    """In the first step DDP has one bucket, or with `find_unused_parameters` as many as later."""
    state = netfold.torch.State("packed", bucket=1)
    model = hooked(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4)), state, **options)
    for _ in range(2):
        model(torch.ones(2)).sum().backward()

    assert state.state_dict()["tensors"] == [["tensor3 4", "tensor2 4x3"], ["tensor1 3", "tensor0 3x2"]]
    assert state.report().rounds["bucket"].to_list() == [0, 1, 0, 1]


def test_fsdp_gets_means_and_sums_alone() -> None:
    group, outputs = dist.group.WORLD, torch.empty(3)
    scatter = netfold.torch.ReduceScatter(netfold.torch.State("exact"), 0)
    updates = netfold.torch.ReduceScatter(netfold.torch.State("exact", learning_rate=0.5), 0)
    assert group is not None

    for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
        scatter(outputs, torch.tensor([1.0, 2.0, 4.0]), group, op)
        assert outputs.tolist() == [1.0, 2.0, 4.0]
    updates(outputs, torch.tensor([1.0, 2.0, 4.0]), group, dist.ReduceOp.AVG)
    assert outputs.tolist() == [0.5, 1.0, 2.0]
    with pytest.raises(netfold.RunError, match="netfold gives means and sums"):
        scatter(outputs, torch.ones(3), group, dist.ReduceOp.MAX)
    with pytest.raises(netfold.RunError, match="module 0: FSDP asks for a sum, and with a learning_rate"):
        updates(outputs, torch.ones(3), group, dist.ReduceOp.SUM)
    with pytest.raises(netfold.RunError, match="FSDP shards over 3 workers, the state has 1"):
        scatter(outputs, torch.ones(3), cast(Any, SimpleNamespace(size=lambda: 3)), dist.ReduceOp.SUM)
    model: Any = fully_shard(nn.Linear(4, 1))
    netfold.torch.set_reduce_scatter(model, netfold.torch.State("exact"))
    model(torch.arange(1.0, 5.0).reshape(1, 4)).sum().backward()
    assert model.weight.grad.full_tensor().tolist() == [[1.0, 2.0, 3.0, 4.0]]


@pytest.mark.processes
def test_the_example_of_the_readme_runs(tmp_path: Path) -> None:
    script = next(iter(re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)))
    assert len(script.splitlines()) < 40
    file = tmp_path / "train.py"
    file.write_text(script, "utf-8")

    first, second = returned(2, tmp_path, run_script, file, free_port())

    assert re.match(r"2 workers, loss \d\.\d+, compression \d\.\d+\n", first)
    assert "2.bias..0.weight" in first  # the report's bucket, by the names of its tensors
    assert second == ""


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 2), nn.Linear(2, 2))


def layout(bucket_bytes: int, has_names: bool = True) -> tuple[nn.Sequential, ParameterLayout]:
    module = model()
    parameters = list(module.parameters())
    names = parameter_names(module.named_parameters()) if has_names else {}
    return module, make_layout(parameters, names, bucket_bytes)


def names_of(found: ParameterLayout) -> list[list[str]]:
    return [[tensor.name for tensor in bucket.tensors] for bucket in found.buckets]


def test_layers_are_in_the_order_of_backward_and_never_split() -> None:
    """By the parameters' names, whatever order they come in."""
    module, found = layout(1)
    parameters = list(module.parameters())[::-1]

    assert names_of(found) == [[f"{layer}.bias", f"{layer}.weight"] for layer in (4, 3, 1, 0)]
    assert names_of(make_layout(parameters, parameter_names(module.named_parameters()), 1)) == names_of(found)
    with pytest.raises(DataError, match=r"a parameter of shape \(8, 8\) that `parameters` does not name"):
        make_layout(parameters[::-1], parameter_names(module[3].named_parameters()), 1)
    scale = nn.Parameter(torch.tensor(1.0))
    found = make_layout([scale], {}, 1)
    assert found.places[scale][1].elements == 1
    assert found.described == [["tensor0 scalar"]]


@pytest.mark.parametrize(
    ("bucket_bytes", "sizes"),
    [
        (24, [6, 18, 16, 72]),  # layer 4 has 24 bytes: full
        (25, [6 + 18, 16, 72]),  # not full: with layer 3 it is
        (65, [6 + 18, 16 + 72]),  # the norm has 64 bytes
        (4 * 112, [112]),
        (4 * 112 + 1, [112]),
    ],
)
def test_a_bucket_is_full_from_a_size_on(bucket_bytes: int, sizes: list[int]) -> None:
    _, found = layout(bucket_bytes)

    assert [bucket.elements for bucket in found.buckets] == sizes


def test_every_parameter_has_a_place_of_its_own() -> None:
    module, found = layout(25)
    taken = [
        (bucket, element)
        for bucket, tensor in found.places.values()
        for element in range(tensor.place.start, tensor.place.stop)
    ]

    assert list(found.places) != []
    assert {id(one) for one in found.places} == {id(one) for one in module.parameters()}
    assert all(tensor.shape == tuple(one.shape) for one, (_, tensor) in found.places.items())
    assert len(taken) == len(set(taken)) == 112


def test_without_names_a_matrix_begins_a_layer() -> None:
    """The norm's vectors follow the first matrix."""
    _, found = layout(1, has_names=False)

    assert [[tensor.shape for tensor in bucket.tensors] for bucket in found.buckets] == [
        [(2,), (2, 2)],
        [(2,), (2, 8)],
        [(8,), (8,), (8,), (8, 8)],
    ]


def test_differences_are_named() -> None:
    assert different([["a 2"], ["b 3"]], [["a 2"], ["b 3"]]) == ""
    assert different([["a 2"], ["b 3"]], [["a 2"], ["b 4"]]) == "bucket 1 has b 4 there, b 3 here"
    assert different([["a 2"]], [["a 2"], ["b 4"]]) == "bucket 1 has b 4 there, no tensors here"
    long = [[*"abcde"]]
    assert different([["f"]], long) == "bucket 0 has a, b, c and 2 more there, f here"


def test_jobs_are_done_in_their_order() -> None:
    """The thread ends with its owner."""
    fifo, done = Fifo("test"), list[int]()
    for number in range(50):
        fifo.submit(lambda number=number: (time.sleep(0.001 * (number % 3)), done.append(number)))  # type: ignore[misc]
    fifo.drain()

    assert done == list(range(50))
    fifo.close()
    fifo.drain()
    fifo.submit(lambda: done.append(50))
    assert done[-1] == 50
    own = Fifo("test of an owner")
    own.submit(lambda: None)
    own.drain()
    (thread,) = (one for one in threading.enumerate() if one.name == "test of an owner")
    del own
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()


LACKS = (frozenset[Merge](), frozenset({Merge.OR}), frozenset({Merge.ADD, Merge.MAX}))  # gloo, NCCL, neither


@pytest.mark.processes
def test_messages_are_merged_by_rank(tmp_path: Path) -> None:
    assert returned(3, tmp_path, every_merge, LACKS) == [[], [], []]


@pytest.mark.processes
def test_exact_codecs_give_the_weights_of_plain_training_and_states_go_on(tmp_path: Path) -> None:
    """Of two workers: a sum of two is rounded once, by PyTorch too. Others' states are refused."""
    trained = returned(2, tmp_path, every_training)
    plain = {mode: trained[0]["modes"][mode]["None"] for mode in MODES}
    for mode, weights in plain.items():
        assert np.isfinite(weights).all()
        for codec, _ in EXACT:
            for worker in trained:
                np.testing.assert_array_equal(worker["modes"][mode][codec], weights, f"{codec}, {mode}")
    same = {mode for mode, weights in plain.items() if np.array_equal(weights, plain["default"])}
    assert "static graph" in same
    assert not same & {"no_sync", "bfloat16", "uneven inputs"}  # these are other trainings
    for rank, worker in enumerate(trained):
        for codec in ("topk", "marsit", "sasg", "a server"):
            whole, resumed, steps = worker[codec]
            np.testing.assert_array_equal(resumed, whole, codec)
            assert sorted(set(steps)) == [3, 4, 5]
        model, other = worker["others"]
        assert "of another model: bucket 0 has" in model
        assert f"the state has the worker [{1 - rank}, 2], here are [{rank}, 2]" in other


WORKERS, STEPS, SEED = 3, 8, 7
ONE, TWO = 1 << 20, 8 << 10  # bytes of a bucket: all layers in one, each in its own
MLP = f"workload={{kind: training, model: mlp, batch: 16, steps: {STEPS}, learning_rate: 0.5, bucket: "
RING, GATHER = "collective={kind: ring}", "collective={kind: all_gather}"
SWITCH = "collective={kind: in_network, frame: udp-256}"
CASES = [  # codec, bytes of a bucket, collective that it is compared with, its merges
    ("packed:values=exact", TWO, RING),  # ADD, MAX, OR
    ("exact", ONE, SWITCH),
    ("lossless:values=exact", ONE, RING),
    ("none", TWO, GATHER),  # FLOAT_ADD
    ("topk:share=0.05", TWO, GATHER),  # GATHER, with error feedback
    ("topk:share=0.05", ONE, "collective={kind: parameter_server}"),
    ("count_sketch:ratio=0.5,share=0.05", ONE, RING),
    ("majority", TWO, SWITCH),  # ADD in lanes of 4 bits
    ("bird_shared:share=0.5", ONE, RING),  # rows of layers
    ("cascaded_sign", ONE, GATHER),  # HOST
    ("marsit:every=5,eta_s=0.001", TWO, GATHER),  # SIGN, updates
    ("sasg:alpha=0,share=0.05", ONE, GATHER),  # GATHER with a server's part, updates
]


def scenario_of(codec: str) -> str:
    kind, _, options = codec.partition(":")
    return f"codec={{kind: {kind}, {options.replace('=', ': ')}}}"


def simulated(
    folder: Path, monkeypatch: pytest.MonkeyPatch, case: tuple[str, int, str]
) -> tuple[Training, Any, Any]:
    """The spec of the workload, the weights after the run, and the records of its rounds and notes."""
    made: list[Workload] = []

    make_one = Training.workload

    def make(*arguments: Any) -> Workload:
        made.append(make_one(*arguments))
        return made[-1]

    monkeypatch.setattr(Training, "workload", make)
    codec, bucket, collective = case
    sets = (f"workers={WORKERS}", f"{MLP}{bucket}B}}", scenario_of(codec), collective)
    resolved = plan(folder, *sets)
    (variant,) = resolved.variants
    result = run_variant(resolved, variant)
    spec = variant.jobs[0].workload
    assert isinstance(spec, Training)
    assert isinstance(made[0], TrainingWorkload)
    return spec, weights_of(made[0].model), result.records


@pytest.mark.slow
@pytest.mark.processes
def test_training_in_processes_is_simulated_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [simulated(tmp_path, monkeypatch, case) for case in CASES]
    codecs = [case[:2] for case in CASES]

    every = returned(WORKERS, tmp_path, train_as_simulated, runs[0][0], WORKERS, SEED, STEPS, codecs)

    start = weights_of(_model(runs[0][0]))
    for case, (_, weights, records), trained in zip(CASES, runs, zip(*every, strict=True), strict=True):
        payload = [sum(sent) for sent in zip(*(one.payload_bytes for one in trained), strict=True)]
        for one in trained:
            np.testing.assert_array_equal(one.weights.view(np.int32), weights.view(np.int32), str(case))
            assert one.notes == [(note.step, note.bucket, note.kind, note.count) for note in records.notes]
        assert payload == [round.payload_bytes_up for round in records.rounds], case
        assert not np.array_equal(weights, start)


def _model(spec: Training) -> Any:
    workload = spec.workload(WORKERS, SEED)
    assert isinstance(workload, TrainingWorkload)
    return workload.model


TEXTS = {  # parts of the error of all workers, in the backward pass of step 1
    "longer": "worker 1 sends 'values' (float_add of 364 float32 words) and 'values'",
    "more": "where worker 0 sends 'values' (float_add of 363 float32 words) and 'values'",
    "early": "worker 1 sends nothing more, having decoded 363 elements where worker 0 sends 'again'",
    "late error": "worker 1, step 1, bucket 0, operation 2, after 'again': KeyError: 'what the codec says'",
    "other bits": "worker 1 has decoded other bits than worker 0 (step 1, bucket 0, operation 2)",
    "no tuple": "the exchange yields a value of type list, must be a tuple of messages",
    "infinite": "only finite values can be carried",
}
REFUSED = {  # what cannot be carried at all
    "settings": ("worker 2 has TopK(", "worker 0 has Packed(", "give all workers the same codec"),
    "seeds": ("worker 2 has Packed(", "with seed 1", "worker 0 has Packed(", "with seed 0"),
    "type": ("bucket 0 has gradients of float64: netfold carries float32, bfloat16, float16",),
    "sparse": ("bucket 0 is a sparse tensor", "sparse=False"),
    "models": ("did not have in the first step", "give each model a state of its own"),
    "names": ("that `parameters` does not name",),
    "joined": ("RunError: worker 1, step 1, bucket 0, operation 2, after 'again': KeyError",),
}


@pytest.mark.processes
def test_all_workers_get_the_same_error(tmp_path: Path) -> None:
    errors = returned(3, tmp_path, failures.every_error)
    for name, part in TEXTS.items():
        first, second, third = errors[0][name]
        assert first == "no error"
        assert second.startswith("RunError: ")
        assert part in second
        assert third == second  # a state that has failed does not go on
    for name, parts in REFUSED.items():
        (text,) = errors[0][name]
        assert all(part in text for part in parts), text
    for name in (*TEXTS, *REFUSED):
        assert [one[name] for one in errors] == [errors[0][name]] * 3, name
    assert "(worker 1, step 1, bucket 0, operation 0)" in errors[2]["infinite"][1]
    assert "decoded an update of the weights and not a sum" in errors[0]["update"][0]
    assert "learning_rate" in errors[0]["update"][0]


@nightly
@pytest.mark.processes
def test_an_uncaught_error_ends_all_processes(tmp_path: Path) -> None:
    ended = run(3, tmp_path, failures.uncaught)

    assert [one.status for one in ended] == [1, 1, 1]
    assert all("what the codec says" in one.error for one in ended)


@nightly
@pytest.mark.processes
@pytest.mark.parametrize("is_default", [True, False])
def test_a_sleeping_worker_ends_the_others_at_the_timeout_of_the_users_group(
    tmp_path: Path, is_default: bool
) -> None:
    """Not at PyTorch's half an hour. Times are asserted, since the time is what the user gave."""
    (error, waited_s), _ = returned(2, tmp_path, failures.asleep, 4, is_default)

    assert error.startswith("RunError: netfold's messages did not get through")
    assert 3.5 < waited_s < 4 + 5


@pytest.mark.processes
def test_a_lost_worker_ends_the_others(tmp_path: Path) -> None:
    first, second, third = run(3, tmp_path, failures.lost)

    assert second.status == 9
    for one in (first, third):
        assert one.status == 1
        assert one.error.startswith("RunError: netfold's messages did not get through")
