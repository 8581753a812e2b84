"""All schedules of the learning rate."""

from __future__ import annotations

from netfold.sim.workload.training.schedules.constant import ConstantSection
from netfold.sim.workload.training.schedules.cosine import CosineSection
from netfold.sim.workload.training.schedules.linear import LinearSection
from netfold.sim.workload.training.schedules.rule import ScheduleSection
from netfold.sim.workload.training.schedules.step import StepSection

SECTIONS: tuple[type[ScheduleSection], ...] = (ConstantSection, StepSection, CosineSection, LinearSection)
