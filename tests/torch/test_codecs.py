"""Which codecs a hook can drive: the table of the README, and the errors of options.

`python -m tests.torch.test_codecs` writes the table again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import netfold
import netfold.torch
from netfold.homomorphic.codec import Decoded
from netfold.homomorphic.codecs import codec_kinds
from netfold.homomorphic.codecs.dense.kinds import DenseExact
from netfold.sim.scenario import load
from netfold.torch.codecs import make_codec, support_of
from netfold.torch.rounds import Rounds
from netfold.torch.wire import Wire
from tests import ROOT
from tests.sim.scenes import write
from tests.torch import modes
from tests.torch.processes import free_port, returned, run_script
from tests.torch.toys import Counting

README = ROOT / "netfold" / "torch" / "README.md"
BEGIN, END = "<!-- codecs -->", "<!-- end of codecs -->"
KINDS = sorted(codec_kinds())


def table() -> str:
    """A row for every codec of the registry, with its default options."""
    rows = ["| codec | works | its messages | has the simulator's bits over |", "|---|---|---|---|"]
    for kind in KINDS:
        codec = make_codec(kind, {})
        found = support_of(codec)
        works = f"{found.works}: {found.why}" if found.why else found.works
        bits = "every collective that carries it" if codec.is_order_free else "`all_gather`"
        rows.append(f"| `{kind}` | {works} | {found.travels} | {bits if found.works != 'no' else '–'} |")
    return "\n".join(rows)


def test_the_readme_lists_every_codec() -> None:
    assert README.read_text("utf-8").partition(BEGIN)[2].partition(END)[0].strip() == table()


@pytest.fixture(scope="module", autouse=True)
def alone() -> Iterator[None]:
    """A process group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def hooked(
    model: nn.Module, codec: Any, **options: Any
) -> tuple[DistributedDataParallel, netfold.torch.State]:
    state = netfold.torch.State(codec, **options)
    return modes.hooked(model, state), state


def trained(kind: Any, **options: Any) -> tuple[nn.Module, nn.Module, netfold.torch.Report]:
    """A model before and after a step of one worker, and what it sent."""
    torch.manual_seed(0)
    before, model = nn.Linear(4, 3), nn.Linear(4, 3)
    model.load_state_dict(before.state_dict())
    ddp, state = hooked(model, kind, **options)
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
    before, model, _ = trained(DenseExact(block_elements=64))  # a codec itself has its options
    assert torch.equal(model.bias, before.bias - 1)  # type: ignore[operator]
    before, model, _ = trained("exact", learning_rate=lambda step: 0.25 + step)
    assert torch.equal(model.bias, before.bias - 0.25)  # type: ignore[operator]


def test_a_learning_rate_is_rounded_after_it_is_divided() -> None:
    """As in the simulator: float32(0.01 / 3), which is not float32(0.01) / float32(3)."""
    wire = cast(Wire, SimpleNamespace(rank=0, workers=3))
    rounds = Rounds(make_codec("exact", {}), wire, 1, lambda step: 0.01)
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
    models = [modes.hooked(nn.Linear(2, 2), state) for _ in range(2)]

    with pytest.raises(netfold.RunError, match="give each model a state of its own"):
        sum(model(torch.ones(2)).sum() for model in models).backward()  # type: ignore[union-attr]
    ddp, closed = hooked(nn.Linear(2, 2), "packed")
    closed.close()
    with pytest.raises(netfold.RunError, match="the state is closed"):
        ddp(torch.ones(2)).sum().backward()


def test_messages_without_words_are_not_counted() -> None:
    """As in a simulated run: the number of a message is the key of random draws."""
    model, state = hooked(nn.Linear(2, 2), Counting())
    model(torch.ones(2)).sum().backward()

    assert state.state_dict()["messages"] == 1
    assert model.module.bias.grad.tolist() == [2.0, 2.0]  # and the server's count


@pytest.mark.parametrize("options", [{}, {"find_unused_parameters": True, "bucket_cap_mb": 1e-5}])
def test_buckets_do_not_depend_on_those_of_ddp(options: dict[str, Any]) -> None:
    """In the first step DDP has one bucket, or with `find_unused_parameters` as many as later."""
    state = netfold.torch.State("packed", bucket=1)
    model = modes.hooked(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4)), state, **options)
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


def main() -> None:
    """Write the table into the README."""
    before, _, rest = README.read_text("utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    README.write_text(f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}", "utf-8")


if __name__ == "__main__":
    main()
