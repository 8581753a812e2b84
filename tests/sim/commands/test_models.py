"""The commands `netfold models …`."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from netfold.sim.commands.main import app
from netfold.sim.errors import ScenarioError
from netfold.sim.study.models import read_model, wanted
from netfold.sim.workload.training.models.ncf import Ncf
from netfold.sim.workload.training.models.perceptrons import Mlp784
from netfold.sim.workload.training.models.registry import MODELS, model_kinds


def printed(*words: str) -> str:
    result = CliRunner().invoke(app, ["models", *words])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_list_has_every_model() -> None:
    lines = printed("list").splitlines()
    listed = json.loads(printed("list", "--json"))["models"]

    assert [one["kind"] for one in listed] == list(model_kinds())
    for kind, one in zip(MODELS, listed, strict=True):
        (line,) = [line for line in lines if line.startswith(f"│ {kind.name()} ")]
        assert f"{one['parameters']:,}" in line
        assert all(data.name in line for data in kind.data)


def test_show_has_options_data_and_layers() -> None:
    text = printed("show", "mlp_784:hidden=[256,128]")
    layers = json.loads(printed("show", "mlp_784:hidden=[256,128]", "--json"))["layers"]

    assert "parameters: 235,146" in text
    assert "option hidden=[512]: Sizes of its hidden layers." in text
    assert [(one["name"], one["parameters"]) for one in layers] == [
        *(("4", 128 * 10 + 10), ("2", 256 * 128 + 128), ("0", 784 * 256 + 256))
    ]
    assert layers[-1]["ready_share"] == 1
    assert "data photos, in place of ImageNet: crops of ten photos, each a class" in printed("show", "vgg19")


def test_measure_shows_known_densities_beside_its_own() -> None:
    line = next(line for line in printed("measure", "ncf").splitlines() if "movielens" in line)
    own, known, union, known_union = (cell.strip() for cell in line.split("│")[5:9])

    assert (known, known_union) == ("18.0 %", "54.9 %")
    assert float(own.removesuffix(" %")) == pytest.approx(18, abs=2)
    assert float(union.removesuffix(" %")) > float(own.removesuffix(" %"))


def test_other_settings_have_no_known_densities() -> None:
    settings = ["--batch", "4", "--workers", "2", "--data", "digits"]
    (found,) = json.loads(printed("measure", "mlp", *settings, "--json"))["densities"]

    assert found["known"] is None
    assert (found["batch"], found["data"], found["parameters"]) == (4, "digits", 9610)


def test_all_known_densities_are_wanted_without_names() -> None:
    items = wanted([], None, None)

    assert (Ncf(expand=(147, 16)), 4096, "movielens-100k") in items
    assert (Mlp784(hidden=(256, 128)), 16, "mnist-5k") in items
    assert len(items) == sum(len(model.densities) for model in MODELS)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("ncf:expand=3", "expand: must be a list of two whole numbers, found 3"),
        ("mlp:hidden=[3]", "unknown key 'hidden'"),
        ("ncf:expand=[1,2],expand=[1,2]", "the key 'expand' appears twice"),
        (
            "./mine.py:make",
            "./mine.py:make: only models of netfold's own are known here\n  give it to a scenario",
        ),
    ],
)
def test_names_that_cannot_be_read(text: str, error: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        read_model(text)

    assert error in str(caught.value)


def test_data_of_another_model() -> None:
    result = CliRunner().invoke(app, ["models", "measure", "mlp", "--data", "photos"])

    assert result.exit_code == 2
    assert "model mlp is not trained on photos\n  use digits\n" in result.output
