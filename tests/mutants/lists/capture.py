"""Faults of recording a training, and of replaying it."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

RECORDED = "tests/sim/capture/test_recorded.py"
LAYOUT = "tests/sim/capture/test_layout.py"
PARTS = "tests/sim/capture/test_parts.py"
CHAKRA = "tests/sim/workload/trace/test_chakra.py"

MUTANTS: list[Mutant] = [
    *faults(
        "sim/capture/recorder.py",
        [RECORDED],
        [
            (
                "gradients are kept as DDP's buckets change them",
                'return found.to("cpu", self._reduced[place].parameter.dtype, copy=True)',
                'return found.to("cpu", self._reduced[place].parameter.dtype)',
            ),
            (
                "micro-batches without a sum are steps",
                "self._is_synced = bool(self._ddp.require_backward_grad_sync)",
                "self._is_synced = True",
            ),
            (
                "what earlier micro-batches gave to an unused parameter is lost",
                "if self._ddp.find_unused_parameters and self._is_wanted():",
                "if False:",
            ),
            (
                "the first step counts",
                "if self._seen > self._settings.skip:",
                "if self._seen >= self._settings.skip:",
            ),
            ("evaluations begin a step", "if not torch.is_grad_enabled():  # an evaluation", "if False:"),
        ],
    ),
    *faults(
        "sim/capture/parts.py",
        [PARTS],
        [
            (
                "steps of one rank are enough",
                "set.intersection(*map(set, by_rank))",
                "set.union(*map(set, by_rank))",
            ),
            ("the first rank joins", "if not all((self.path", "if not any((self.path"),
            ("ranks may have other buckets", 'if part["buckets"] != first["buckets"]:', "if False:"),
        ],
    ),
    *faults(
        "sim/capture/layout.py",
        [LAYOUT],
        [
            (
                "a file's size does not count",
                "if size_bytes != one.bytes:",
                "if False:",
            ),
            (
                "buckets may share a tensor",
                "if places != list(range(len(trace.tensors))):",
                "if set(places) > set(range(len(trace.tensors))):",
            ),
        ],
    ),
    *faults(
        "sim/capture/values.py",
        [LAYOUT],
        [
            ("a digest does not count", "if digest.hexdigest() != sha256:", "if False:"),
            ("rows are in any order", "and (np.diff(rows) > 0).all()", ""),
            ("other tensors may be there", "    if names:\n", "    if False:\n"),
        ],
    ),
    *faults(
        "sim/workload/trace/recorded.py",
        [LAYOUT],
        [
            ("all ranks have the times of rank 0", "ranks[worker % len(ranks)]", "ranks[0]"),
            ("all steps have the times of the first", "self.steps[step % len(self.steps)]", "self.steps[0]"),
        ],
    ),
    *faults(
        "sim/workload/trace/chakra/schedule.py",
        [CHAKRA],
        [
            (
                "the processor and the accelerator are one",
                "start_us = max(ready_us, free_us[node.is_cpu])",
                "start_us = max(ready_us, *free_us.values())",
            ),
            (
                "computations overlap without limit",
                "end_us = free_us[node.is_cpu] = start_us + node.duration_us",
                "end_us = start_us + node.duration_us",
            ),
            (
                "every node after an all-reduce begins a step",
                "is_next = is_all_reduce(known[number]) and node.kind not in _COMMUNICATION",
                "is_next = False",
            ),
        ],
    ),
]
