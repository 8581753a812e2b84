"""The checks at the end of every variant; each is a statement that can be false."""

from netfold.sim.checks.finding import Ending as Ending
from netfold.sim.checks.finding import Finding as Finding
from netfold.sim.checks.job import check_job as check_job
from netfold.sim.checks.leaks import leak_causes as leak_causes
from netfold.sim.checks.leaks import leak_warnings as leak_warnings
from netfold.sim.checks.network import check_network as check_network
