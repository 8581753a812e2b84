"""Checks of every round: merged words and decoded sums against independently computed sums."""

from netfold.sim.checks.rounds.examine import examine as examine
from netfold.sim.checks.rounds.findings import Findings as Findings
from netfold.sim.checks.rounds.findings import Operation as Operation
from netfold.sim.checks.rounds.findings import WrongWord as WrongWord
from netfold.sim.checks.rounds.merges.hosts import HostReplay as HostReplay
