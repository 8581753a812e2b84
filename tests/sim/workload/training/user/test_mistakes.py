"""What a wrong model of the user's is told, before anything is trained and during training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from netfold.sim.errors import DataError
from netfold.sim.workload import TrainingSpec, training_workload
from netfold.sim.workload.training.models.spec import TaskSettings
from netfold.sim.workload.training.user.errors import UserModelError
from netfold.sim.workload.training.user.model import UserModel
from tests.sim.workload.training.loop.given import train
from tests.sim.workload.training.user.mine import HEADER, located

MISTAKES: list[dict[str, Any]] = YAML(typ="safe").load(Path(__file__).with_name("mistakes.yaml"))


@pytest.mark.parametrize("case", MISTAKES, ids=[case["mistake"] for case in MISTAKES])
def test_mistakes_are_told_before_training(tmp_path: Path, case: dict[str, Any]) -> None:
    with pytest.raises(DataError) as caught:
        located(tmp_path, case["make"])

    found = str(caught.value)

    assert found.startswith(case.get("starts", ""))
    assert "starts" in case or found == case["error"]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserModelError) as caught:
        UserModel(make="./other.py:make").located(tmp_path, TaskSettings("", 4, 2, 1))

    assert str(caught.value) == (
        "cannot read ./other.py: there is no such file\n"
        "  give a file and a function in it, such as ./mine.py:make, relative to the scenario file"
    )
    (tmp_path / "other.py").write_text("WIDTH = 3\n", "utf-8")
    with pytest.raises(UserModelError) as caught:
        UserModel(make="./other.py:make").located(tmp_path, TaskSettings("", 4, 2, 1))
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


@pytest.mark.parametrize(
    ("happens", "error"),
    [
        (
            "self.bias = nn.Parameter(torch.ones(1))",
            "step 2, worker 0: mine.py: the shape of the parameter 'bias' has changed: it was 2, it is 1\n"
            "  create all parameters when the module is made, and do not replace them",
        ),
        (
            "self.more = nn.Parameter(torch.ones(1))",
            "step 2, worker 0: mine.py: the shape of the parameter 'more' has changed: it was missing, "
            "it is 1\n  create all parameters when the module is made, and do not replace them",
        ),
        (
            "self.extra = lambda: torch.full((1,), float('inf')) * self.bias",
            "step 2, worker 0: mine.py: 8 of 8 elements of the gradient of 'weight' are not finite: the ",
        ),
        (
            "self.extra = lambda: (self.weight.register_hook(lambda _: {}['late']), 0)[1]",
            "step 2, worker 0: mine.py, line 17, in <lambda>: KeyError: 'late'\n  the line is: self.extra",
        ),
        (
            "raise KeyError('lost')",
            "step 2, worker 0: mine.py, line 17, in happen: KeyError: 'lost'\n"
            "  the line is: raise KeyError('lost')",
        ),
    ],
)
def test_mistakes_are_told_with_step_and_worker(tmp_path: Path, happens: str, error: str) -> None:
    make = "def make():\n    return Later(4, 2), DATA, LOSS\n"
    body = f"{LATER}    def happen(self):\n        {happens}\n\n{make}"
    workload = training_workload(TrainingSpec(located(tmp_path, body), 4, 0.1), 2, 1)
    train(workload, range(2))
    with pytest.raises(UserModelError) as caught:
        workload.gradients(2)

    assert str(caught.value).startswith(error)


def test_a_file_that_changes_between_check_and_run(tmp_path: Path) -> None:
    body = "def make():\n    return MODULE(), DATA, LOSS\n"
    model = located(tmp_path, body)
    (tmp_path / "mine.py").write_text(f"{HEADER}{body}# another\n", "utf-8")
    with pytest.raises(UserModelError, match="was changed after it had been checked"):
        training_workload(TrainingSpec(model, 4, 0.1), 2, 1)


def test_tests_need_a_score(tmp_path: Path) -> None:
    with pytest.raises(UserModelError, match="returned no score, which evaluate needs"):
        located(tmp_path, "def make():\n    return MODULE(), DATA, LOSS\n", holds_out=True)
