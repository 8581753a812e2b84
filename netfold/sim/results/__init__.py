"""A run's results: computed from records, written as one folder that is complete or absent, and read back.

summary = summarize(facts, records)           # records → metrics and a verdict
folder = write_run(out_dir, RunData(records=records, summary=summary, ...))
run = load(folder)                            # the input of reports and comparisons
"""

from netfold.sim.plan.reference import Reference
from netfold.sim.results.reader import Run, load
from netfold.sim.results.summary import VariantFacts, summarize
from netfold.sim.results.writer import RunData, write_run

__all__ = ["Reference", "Run", "RunData", "VariantFacts", "load", "summarize", "write_run"]
