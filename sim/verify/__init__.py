"""Is the result what it should be? Every round is held against sums taken another way."""

from netfold.sim.verify.examine import examine as examine
from netfold.sim.verify.findings import Findings as Findings
from netfold.sim.verify.findings import Operation as Operation
from netfold.sim.verify.findings import WrongWord as WrongWord
