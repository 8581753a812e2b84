"""Is the result what it should be? Every round is held against sums taken another way."""

from sim.verify.examine import examine as examine
from sim.verify.findings import Findings as Findings
from sim.verify.findings import Operation as Operation
from sim.verify.findings import WrongWord as WrongWord
