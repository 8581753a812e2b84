"""All optimizers."""

from __future__ import annotations

from netfold.sim.workload.training.optimizers.adam import AdamSection
from netfold.sim.workload.training.optimizers.adamw import AdamWSection
from netfold.sim.workload.training.optimizers.rule import OptimizerSection
from netfold.sim.workload.training.optimizers.sgd import SgdSection

SECTIONS: tuple[type[OptimizerSection], ...] = (SgdSection, AdamSection, AdamWSection)
