"""The checks that end every variant, each a sentence that can be false."""

from sim.checks.finding import Ending as Ending
from sim.checks.finding import Finding as Finding
from sim.checks.job import check_job as check_job
from sim.checks.leaks import leak_causes as leak_causes
from sim.checks.leaks import leak_warnings as leak_warnings
from sim.checks.network import check_network as check_network
