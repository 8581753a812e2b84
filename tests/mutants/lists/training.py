"""Faults of trained models: their data, tests on held-out data, and the figure of training."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

W = "tests/sim/workload/training/"
HELD_OUT = W + "test_held_out.py"

MUTANTS: list[Mutant] = [
    *faults(
        "sim/workload/training/data/images.py",
        [W + "test_pictures.py"],
        [
            ("small pixels have their centres at whole numbers", "max(4 * row - 5, 0)", "max(4 * row, 0)"),
            ("the right neighbour has the weight of the left", "= _PARTS - share", "= share"),
            ("greys of 0 to 16 are divided by 15", "_GREYS = 16", "_GREYS = 15"),
        ],
    ),
    *faults(
        "sim/workload/training/tasks/images.py",
        [HELD_OUT],
        [
            (
                "workers draw what is tested",
                "[samples[own] for own in shards(len(samples), settings.workers, settings.seed)]",
                "shards(len(digits.labels), settings.workers, settings.seed)",
            ),
            (
                "each seed tests other digits",
                'keyed(0, "held-out digits")',
                'keyed(settings.seed, "held-out digits")',
            ),
            ("logits that are not finite may be right", " & logits.isfinite().all(1)", ""),
            ("the smallest logit wins", "logits.argmax(1)", "logits.argmin(1)"),
        ],
    ),
    *faults(
        "sim/workload/training/tasks/recommender.py",
        [HELD_OUT],
        [
            (
                "held-out ratings are trained on",
                "ratings = without(ratings, self.tests.ratings)",
                "ratings = without(ratings, self.tests.ratings[:0])",
            ),
            (
                "equal logits count as worse",
                "~(logits[:, 1:] < logits[:, :1])",
                "logits[:, 1:] > logits[:, :1]",
            ),
            ("eleven films are the top ten", "better < TOP", "better <= TOP"),
            (
                "the first of ratings at one time is the last",
                "np.lexsort((np.arange(len(ratings.times)), ratings",
                "np.lexsort((-np.arange(len(ratings.times)), ratings",
            ),
            (
                "rivals may be rated films",
                "np.flatnonzero(~is_rated[user])",
                "np.arange(ratings.items_count)",
            ),
        ],
    ),
    *faults(
        "sim/workload/training/workload.py",
        [HELD_OUT],
        [("the last step is not tested", "is_last or (step + 1)", "(step + 1)")],
    ),
    *faults(
        "sim/results/summary.py",
        ["tests/sim/results/test_summary.py"],
        [
            (
                "the first test is the last",
                "for step in reversed(steps) if step.test",
                "for step in steps if step.test",
            )
        ],
    ),
    *faults(
        "sim/report/learning.py",
        ["tests/sim/report/test_learning.py"],
        [
            (
                "bytes down do not count",
                '(pl.col("wire_bytes_up") + pl.col("wire_bytes_down"))',
                'pl.col("wire_bytes_up")',
            ),
            ("a loss lies after its step", "return own[axis.before], own", "return own[axis.after], own"),
            ("a loss that explodes hides the others", "if 0 < loss <= most]", "if 0 < loss < math.inf]"),
        ],
    ),
]
