"""Faults of the training loop: optimizers, schedules, local steps, buffers, the arena, targets."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

LOOP = "tests/sim/workload/training/loop/"
OPTIMIZERS, SCHEDULES = LOOP + "test_optimizers.py", LOOP + "test_schedules.py"
TRAINING = "sim/workload/training/"

MUTANTS: list[Mutant] = [
    *faults(
        TRAINING + "weights.py",
        [OPTIMIZERS, LOOP + "test_against_pytorch.py"],
        [
            ("the optimizer steps on the sum", "step / np.float32(move.mean_of)", "step / np.float32(1)"),
            ("restarts keep momentum", "self._memory.restart()", "pass"),
        ],
    ),
    *faults(
        TRAINING + "weights.py",
        [LOOP + "test_against_pytorch.py"],
        [("optimizers decay what no worker used", "if name not in unused:", "if True:")],
    ),
    *faults(
        TRAINING + "loop/usage.py",
        [LOOP + "test_against_pytorch.py"],
        [
            (
                "what one worker leaves out counts as unused",
                ".difference(*self._step)",
                ".difference(self._step[0])",
            ),
            ("a resumed training counts anew", "state.get(_KEY, np", "state.get('', np"),
        ],
    ),
    *faults(
        TRAINING + "loop/recipe.py",
        [LOOP + "test_local.py"],
        [
            ("schedules count exchanges", "step * self.local_steps + local,", "step,"),
            (
                "workers with momentum can compute again",
                "if self.is_local and self.optimizer.state_floats:",
                "if False:",
            ),
        ],
    ),
    *faults(
        TRAINING + "schedules/rule.py",
        [SCHEDULES],
        [
            (
                "the first step of a warm-up has no rate",
                "(step + 1) / (self.warmup + 1)",
                "step / (self.warmup + 1)",
            ),
            ("a schedule goes on during the warm-up", "step - self.warmup, max", "step, max"),
        ],
    ),
    *faults(
        TRAINING + "loop/local.py",
        [LOOP + "test_local.py"],
        [
            (
                "differences are after less before",
                "before[name], after, out=after",
                "after, before[name], out=after",
            ),
            (
                "all local steps have the same batch",
                "step * recipe.local_steps + local, worker, take",
                "step * recipe.local_steps, worker, take",
            ),
            ("workers share an optimizer", "self._memories[worker].step", "self._memories[0].step"),
        ],
    ),
    *faults(
        TRAINING + "loop/buffers.py",
        [LOOP + "test_buffers.py"],
        [("statistics are those of the last worker", "self._write(self._after)", "pass")],
    ),
    *faults(
        TRAINING + "loop/passes.py",
        [LOOP + "test_buffers.py"],
        [("tests run in the mode of training", "    model.eval()\n", "    pass\n")],
    ),
    *faults(
        TRAINING + "loop/arena.py",
        [LOOP + "test_arena.py"],
        [
            ("what the loss leaves out keeps its old gradient", "own[:] = 0", "pass"),
            ("a second part replaces the first", "own.add_(dense)", "own.copy_(dense)"),
        ],
    ),
    *faults(
        TRAINING + "loop/rows.py",
        [LOOP + "test_arena.py"],
        [
            (
                "rows of two parts are not added",
                "np.searchsorted(places, one.places)] +=",
                "np.searchsorted(places, one.places)] =",
            )
        ],
    ),
    *faults(
        TRAINING + "loop/metrics.py",
        ["tests/sim/results/test_summary.py"],
        [("a target must be exceeded", "value >= target if", "value > target if")],
    ),
    *faults(
        "sim/run/step/computing.py",
        ["tests/sim/run/step/test_parts.py"],
        [
            (
                "local steps take the time of one",
                "for end_ps in range(both_ps, times * both_ps, both_ps) if both_ps else ():",
                "for end_ps in ():",
            )
        ],
    ),
]
