"""Models of users."""

from __future__ import annotations

import copy
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ruamel.yaml import YAML

import netfold
from netfold.errors import DataError
from netfold.sim.run.named_files import read_named
from netfold.sim.scenario.load import load
from netfold.sim.scenario.resolve import resolve
from netfold.sim.workload.layers import layers_of
from netfold.sim.workload.model import Model, TaskSettings
from netfold.sim.workload.models.registry import model_named
from netfold.sim.workload.training import TrainingWorkload
from netfold.sim.workload.user_model import UserModel, imported_files
from netfold.sim.workload.workload_keys import Evaluate, Training
from tests.sim.workload.given import by_name, train
from tests.sim.workload.mine import BATCH, HEADER, SEED, WORKERS, located

SCENARIO = """name: mine
topology: {kind: star, hosts: 2, rate: 10Gbps}
workers: 2
workload: {kind: training, model: "./mine.py:make", batch: 4, steps: 2, evaluate: {every: 1}}
codec: {kind: fixed_point}
collective: {kind: in_network, program: switchml}
"""


PLAIN = "def make():\n    return MODULE(), DATA, LOSS"


def workload_of(model: Model, seed: int = SEED, test_every: int | None = None) -> TrainingWorkload:
    workload = Training(
        model, batch=BATCH, learning_rate=0.5, evaluate=test_every and Evaluate(test_every)
    ).workload(WORKERS, seed)
    assert isinstance(workload, TrainingWorkload)
    return workload


def test_gradients_are_those_of_pytorch(tmp_path: Path) -> None:
    """By a plain loop over the same samples, without netfold's task."""
    body = (
        "class Mine(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.one, self.two = nn.Linear(4, 3), nn.Linear(3, 2)\n"
        "    def forward(self, inputs):\n        return self.two(torch.tanh(self.one(inputs)))\n"
        "def make():\n    return Mine(), DATA, LOSS\n"
    )
    workload = workload_of(located(tmp_path, body))
    images, targets = torch.arange(36.0).reshape(9, 4) / 36, torch.ones(9, 2)
    for worker, parts in enumerate(workload.gradients(0)):
        (inputs,), wanted = workload._task.samples(0, worker)
        assert all(any(torch.equal(row, image) for image in images) for row in inputs)
        assert torch.equal(wanted, targets[:BATCH])
        leaves = dict(copy.deepcopy(workload.model).named_parameters())
        hidden = torch.tanh(inputs @ leaves["one.weight"].T + leaves["one.bias"])
        ((hidden @ leaves["two.weight"].T + leaves["two.bias"] - wanted) ** 2).mean().backward()

        assert leaves.keys() == by_name(workload, parts).keys()
        for name, part in by_name(workload, parts).items():
            np.testing.assert_allclose(part, leaves[name].grad, rtol=1e-5, atol=1e-7)


def test_it_has_the_tensors_that_a_built_in_model_of_these_layers_has(tmp_path: Path) -> None:
    body = (
        "def make():\n    module = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))\n"
        "    return module, (torch.randn(9, 64), torch.arange(9)), nn.CrossEntropyLoss()\n"
    )
    found, known = located(tmp_path, body), model_named("mlp")

    assert found.tensors == known.tensors
    assert [layer.name for layer in layers_of(found.tensors)] == ["2", "0"]
    assert found.elements == 9610


def test_frozen_parameters_are_neither_trained_nor_sent(tmp_path: Path) -> None:
    body = (
        "def make():\n    module = MODULE()\n    module.bias.requires_grad_(False)\n"
        "    return module, DATA, LOSS\n"
    )
    model = located(tmp_path, body)
    workload = workload_of(model)
    before = workload.model.get_parameter("bias").detach().clone()
    train(workload, range(1))

    assert [tensor.name for tensor in model.tensors] == ["weight"]
    assert torch.equal(workload.model.get_parameter("bias"), before)


def test_samples_with_names(tmp_path: Path) -> None:
    body = (
        "class Mine(nn.Linear):\n    def forward(self, first, second):\n"
        "        return super().forward(first + second)\n"
        "def make():\n"
        "    items = [{'first': torch.ones(4) * n, 'second': torch.zeros(4)} for n in range(9)]\n"
        "    return Mine(4, 2), items, lambda outputs, batch: outputs.mean() + batch['second'].sum()\n"
    )
    workload = workload_of(located(tmp_path, body))
    (weights,) = [one for one in workload.gradients(0)[0] if one.size == 8 + 2]
    (batch,), targets = workload._task.samples(0, 0)

    assert batch is targets
    # bias first: the mean of two outputs by each bias, and the mean of the inputs by each weight
    np.testing.assert_allclose(weights[:2], [0.5, 0.5], rtol=1e-6)
    np.testing.assert_allclose(weights[2:], np.tile(batch["first"].mean(0) / 2, 2), rtol=1e-6)


def test_random_numbers_of_the_user_repeat_and_leave_no_trace(tmp_path: Path) -> None:
    body = (
        "import random\nimport numpy as np\nclass Mine(nn.Linear):\n    def forward(self, inputs):\n"
        "        return nn.functional.dropout(super().forward(inputs), 0.5)\n"
        "def make():\n    module = Mine(4, 2)\n"
        "    nn.init.constant_(module.bias, random.random() + np.random.rand())\n"
        "    return module, DATA, LOSS\n"
    )
    states = random.getstate(), str(np.random.get_state()), torch.get_rng_state()  # noqa: NPY002
    model = located(tmp_path, body)
    first, second, other = (
        np.array([np.concatenate(parts) for parts in workload_of(model, seed).gradients(0)])
        for seed in (SEED, SEED, SEED + 1)
    )

    assert np.array_equal(first, second)
    assert not np.array_equal(first[0], other[0])
    assert random.getstate() == states[0]
    assert str(np.random.get_state()) == states[1]  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), states[2])


NO_NUMBER = (
    "mine.py:make: the score must be a number, found {}\n  return one that is larger for better models"
)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("float('nan')", "mine.py:make: the score is nan"),
        ("float('inf')", "mine.py:make: the score is inf"),
        ("'good'", NO_NUMBER.format("a str")),
        ("None", NO_NUMBER.format("nothing")),
        ("torch.ones(3, 2)", NO_NUMBER.format("a tensor of 3 x 2")),
        ("[1]", NO_NUMBER.format("a list")),
    ],
)
def test_a_score_that_is_no_number(tmp_path: Path, value: str, error: str) -> None:
    workload = workload_of(
        located(tmp_path, f"{PLAIN}, lambda module: {value}\n", holds_out=True), test_every=1
    )
    with pytest.raises(DataError) as caught:
        workload.score(0, is_last=True)

    assert str(caught.value).startswith(error)


def test_scores_below_zero_are_kept(tmp_path: Path) -> None:
    """A score may be a loss with its sign turned, and so may its target."""
    located(tmp_path, f"{PLAIN}, lambda module: -1.5\n", holds_out=True)
    scenario = SCENARIO.replace("{every: 1}", "{every: 1, target: -2}")
    (tmp_path / "mine.yaml").write_text(scenario, "utf-8")
    metrics = netfold.run(tmp_path / "mine.yaml", out=tmp_path / "runs").summary["variants"][0]["metrics"]

    assert metrics["test_score"] == -1.5
    assert (metrics["target"], metrics["steps_to_target"]) == (-2.0, 1)


def test_what_a_model_prints_is_no_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --json the output is one JSON object."""
    body = (
        "print('file')\nclass Loud(nn.Linear):\n    def forward(self, inputs):\n        print('forward')\n"
        "        return super().forward(inputs)\ndef loss(outputs, targets):\n    print('loss')\n"
        "    return LOSS(outputs, targets)\ndef score(module):\n    print('score')\n    return 0.5\n"
        "def make():\n    print('make')\n    return Loud(4, 2), DATA, loss, score\n"
    )
    workload = workload_of(located(tmp_path, body, holds_out=True), test_every=1)
    workload.gradients(0)
    workload.score(0, is_last=True)
    written = capsys.readouterr()

    assert written.out == ""
    assert set(written.err.split()) == {"file", "make", "forward", "loss", "score"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import torch, os.path", set()),
        ("import one", {"one.py"}),
        ("def make():\n    import one as own", {"one.py"}),
        ("from one import anything", {"one.py"}),
        ("import parts.sizes", {"parts/__init__.py", "parts/sizes.py", "parts/below.py"}),
        ("from parts import sizes", {"parts/__init__.py", "parts/sizes.py", "parts/below.py"}),
        ("from parts import WIDTH", {"parts/__init__.py"}),
        ("import chain", {"chain.py", "one.py"}),
        ("import circle", {"circle.py"}),
        ("import broken", {"broken.py"}),
        ("import one.absent", {"one.py"}),
        ("this is no Python", set()),
    ],
)
def test_import_statements_are_followed(tmp_path: Path, text: str, expected: set[str]) -> None:
    (tmp_path / "parts").mkdir()
    for name, content in {
        "mine.py": text,
        "one.py": "",
        "two.py": "",
        "chain.py": "import one",
        "circle.py": "import mine, circle",
        "broken.py": "import (",
        "parts/__init__.py": "WIDTH = 2",
        "parts/sizes.py": "from .below import WIDTH\nfrom . import below",
        "parts/below.py": "WIDTH = 2",
    }.items():
        (tmp_path / name).write_text(content, "utf-8")

    found = imported_files(tmp_path / "mine.py")

    assert {one.relative_to(tmp_path).as_posix() for one in found} == expected


def written(folder: Path) -> Path:
    """A scenario whose model imports a package."""
    (folder / "parts").mkdir()
    (folder / "parts" / "sizes.py").write_text("WIDTH = 2\n", "utf-8")
    make = "def make():\n    return nn.Linear(4, sizes.WIDTH), DATA, LOSS, lambda module: 0.25\n"
    located(folder, f"from parts import sizes\n{make}")
    (folder / "mine.yaml").write_text(SCENARIO, "utf-8")
    return folder / "mine.yaml"


def test_a_run_folder_has_them_so_that_it_can_be_run_again(tmp_path: Path) -> None:
    run = netfold.run(written(tmp_path), out=tmp_path / "runs")
    inputs = [one["path"] for one in run.summary["inputs"]]
    again_in = tmp_path / "copy"
    shutil.copytree(run.path, again_in)
    again = netfold.run(again_in / "scenario.yaml", out=tmp_path / "runs")
    columns = ("loss", "test_score", "test_metric")

    assert inputs == ["mine.py", "parts/sizes.py"]
    assert [(run.path / name).read_bytes() for name in inputs] == [
        (tmp_path / name).read_bytes() for name in inputs
    ]
    assert run.verdict == again.verdict == "pass"
    assert run.steps.select(*columns).equals(again.steps.select(*columns))
    assert run.steps["test_score"].to_list() == [0.25, 0.25]
    assert run.summary["variants"][0]["setup"]["workload"]["model"] == "./mine.py:make"


def test_one_that_changes_during_the_run_is_noticed(tmp_path: Path) -> None:
    files = read_named(resolve(load(written(tmp_path))))
    files.require_unchanged()
    (tmp_path / "parts" / "sizes.py").write_text("WIDTH = 2  # still\n", "utf-8")

    with pytest.raises(DataError, match=r"sizes\.py: was changed while the run was using it"):
        files.require_unchanged()


MISTAKES: list[dict[str, Any]] = YAML(typ="safe").load(Path(__file__).with_name("mistakes.yaml"))


@pytest.mark.parametrize("case", MISTAKES, ids=[case["mistake"] for case in MISTAKES])
def test_mistakes_are_told_before_training(tmp_path: Path, case: dict[str, Any]) -> None:
    with pytest.raises(DataError) as caught:
        located(tmp_path, case["make"])

    found = str(caught.value)

    assert found.startswith(case.get("starts", ""))
    assert "starts" in case or found == case["error"]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    model, settings = UserModel(make="./other.py:make"), TaskSettings("", 4, 2, 1)
    with pytest.raises(DataError) as caught:
        model.locate(tmp_path, settings)

    assert str(caught.value) == (
        "cannot read ./other.py: there is no such file\n"
        "  give a file and a function in it, such as ./mine.py:make, relative to the scenario file"
    )
    (tmp_path / "other.py").write_text("WIDTH = 3\n", "utf-8")
    with pytest.raises(DataError) as caught:
        model.locate(tmp_path, settings)
    assert str(caught.value) == "./other.py has no function 'make'\n  it has no functions at all"


@pytest.mark.parametrize("make", ["./mine.py", "mine.py:", "mine:make", "./mine.py:a-b", ":make"])
def test_a_file_without_a_function(make: str) -> None:
    with pytest.raises(ValueError, match="cannot read"):
        UserModel(make=make)


LATER = """
class Later(nn.Linear):
    def forward(self, inputs):
        if not hasattr(self, "calls"):
            self.calls = 0
        self.calls += 1
        if self.calls == 1 + 2 * 2 + 1:  # the pass before training, two steps, and the first worker's
            self.happen()
        return super().forward(inputs) + self.extra()

    def extra(self):
        return 0
"""


CHANGED = "it is 1\n  create all parameters when the module is made, and do not replace them"


@pytest.mark.parametrize(
    ("happens", "error"),
    [
        (
            "self.bias = nn.Parameter(torch.ones(1))",
            f": the shape of the parameter 'bias' has changed: it was 2, {CHANGED}",
        ),
        (
            "self.more = nn.Parameter(torch.ones(1))",
            f": the shape of the parameter 'more' has changed: it was missing, {CHANGED}",
        ),
        (
            "self.extra = lambda: torch.full((1,), float('inf')) * self.bias",
            ": 8 of 8 elements of the gradient of 'weight' are not finite: the ",
        ),
        (
            "self.extra = lambda: (self.weight.register_hook(lambda _: {}['late']), 0)[1]",
            ", line 17, in <lambda>: KeyError: 'late'\n  the line is: self.extra",
        ),
        (
            "raise KeyError('lost')",
            ", line 17, in happen: KeyError: 'lost'\n  the line is: raise KeyError('lost')",
        ),
    ],
)
def test_mistakes_are_told_with_step_and_worker(tmp_path: Path, happens: str, error: str) -> None:
    make = "def make():\n    return Later(4, 2), DATA, LOSS\n"
    workload = workload_of(located(tmp_path, f"{LATER}    def happen(self):\n        {happens}\n\n{make}"))
    train(workload, range(2))
    with pytest.raises(DataError) as caught:
        workload.gradients(2)

    assert str(caught.value).startswith(f"step 2, worker 0: mine.py{error}")


def test_a_file_that_changes_between_check_and_run(tmp_path: Path) -> None:
    model = located(tmp_path, PLAIN)
    (tmp_path / "mine.py").write_text(f"{HEADER}{PLAIN}# another\n", "utf-8")
    with pytest.raises(DataError, match="was changed after it had been checked"):
        workload_of(model)


def test_tests_need_a_score(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="returned no score, which evaluate needs"):
        located(tmp_path, PLAIN, holds_out=True)
