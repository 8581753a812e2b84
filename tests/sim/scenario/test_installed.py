"""What an installed package announces can be named in scenarios, and is resolved like netfold's own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from netfold import kinds
from netfold.errors import NetfoldError
from netfold.sim.workload.models.registry import model_kinds, model_named, read_model
from tests.sim.scenes import only, refused
from tests.test_kinds import installed

SOURCE = """
from dataclasses import dataclass
from typing import ClassVar, Literal

from netfold.homomorphic.codecs.none import Uncompressed
from netfold.homomorphic.message import Tensor
from netfold.sim.collectives.host_messages import scheduled
from netfold.sim.collectives.kinds.ring import Ring
from netfold.sim.keys import Count
from netfold.sim.scenario.faults import Loss
from netfold.sim.workload.devices import FixedDevice
from netfold.sim.workload.model import Data, Model, ModelFacts
from netfold.topologies.kinds.star import Star


@dataclass(frozen=True)
class ToyCodec(Uncompressed):
    kind: ClassVar[str] = "toy_codec"


@dataclass(frozen=True, kw_only=True)
class ToyStar(Star):
    kind: ClassVar[str] = "toy_star"


class ToyRing(Ring):
    kind: Literal["toy_ring"]


TOY_RING = scheduled(ToyRing)


@dataclass(frozen=True)
class ToyModel(Model):
    kind: ClassVar[str] = "toy_model"
    width: Count = 3

    @property
    def facts(self):
        tensors = (Tensor("weight", (self.width,), "layer"),)
        data = (Data("digits"),)
        return ModelFacts(title="Toy", meaning="", source="", metric="accuracy", data=data, tensors=tensors)

    def module(self):
        raise TypeError("it is only planned")

    def task(self, settings):
        raise TypeError("it is only planned")


@dataclass(frozen=True, kw_only=True)
class ToyDevice(FixedDevice):
    kind: ClassVar[str] = "toy_device"


@dataclass(frozen=True, kw_only=True)
class ToyLoss(Loss):
    kind: ClassVar[str] = "toy_loss"
"""
ENTRIES = {
    "codecs": "ToyCodec",
    "topologies": "ToyStar",
    "collectives": "TOY_RING",
    "models": "ToyModel",
    "devices": "ToyDevice",
    "faults": "ToyLoss",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of packages, in which the registry looks, and which it forgets afterwards."""
    apart = {
        base: replace(
            members, members=dict(members.members), origins=dict(members.origins), has_installed=False
        )
        for base, members in kinds._families.items()
    }
    monkeypatch.setattr(kinds, "_families", apart)
    monkeypatch.syspath_prepend(tmp_path)
    kinds._entry_points.cache_clear()
    yield tmp_path
    kinds._entry_points.cache_clear()
    sys.modules.pop("toy_package", None)


def test_each_family_takes_what_a_package_brings(folder: Path) -> None:
    installed(folder, "netfold.codecs", "toy_package:ToyCodec", SOURCE)
    about = folder / "toy_package-1.0.dist-info" / "entry_points.txt"
    groups = (f"[netfold.{family}]\nmine = toy_package:{name}\n" for family, name in ENTRIES.items())
    about.write_text("\n".join(groups))
    variant = only(
        folder,
        "topology={kind: toy_star, hosts: 4}",
        "codec={kind: toy_codec}",
        "collective={kind: toy_ring, channels: 2}",
        "workload={kind: training, model: {kind: toy_model, width: 5}}",
        "device={kind: toy_device, forward: 1us, backward: 2us}",
        "faults=[{kind: toy_loss, rate: 1%}]",
    )
    (job,) = variant.jobs
    workload: Any = job.workload
    device: Any = job.device

    assert (job.codec.kind, job.collective.kind) == ("toy_codec", "toy_ring")
    assert (device.kind, device.forward_ps, device.backward_ps) == ("toy_device", 10**6, 2 * 10**6)
    assert [fault.kind for fault in variant.faults.faults] == ["toy_loss"]
    assert [tensor.shape for tensor in workload.tensors] == [(5,)]
    assert "toy_model" in model_kinds()
    assert model_named("toy_model") == read_model("toy_model") == read_model({"kind": "toy_model"})
    assert "allowed: none, fixed, roofline, trace, measured, toy_device" in refused(
        folder, "device={kind: tpu}", "topology={kind: toy_star, hosts: 4}"
    )


def test_a_model_cannot_take_the_kind_of_one_of_netfolds(folder: Path) -> None:
    """netfold's own are known by a table, and imported when one of them is built."""
    installed(folder, "netfold.models", "toy_package:ToyModel", SOURCE.replace('"toy_model"', '"gpt"'))

    with pytest.raises(NetfoldError, match=r"kind 'gpt': netfold.* and toy_package\.ToyModel"):
        model_kinds()
