"""Is the result what it should be? Every round is held against sums taken another way."""

from netfold.sim.checks.rounds.examine import examine as examine
from netfold.sim.checks.rounds.findings import Findings as Findings
from netfold.sim.checks.rounds.findings import Operation as Operation
from netfold.sim.checks.rounds.findings import WrongWord as WrongWord
