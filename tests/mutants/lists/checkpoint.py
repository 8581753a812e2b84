"""Faults of checkpoints: what they hold, when they are taken, and what they are checked for."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

C = "tests/sim/checkpoint/"

MUTANTS: list[Mutant] = [
    *faults(
        "sim/checkpoint/tables.py",
        [C + "test_resume.py"],
        [
            (
                "counters of fault rules are not stored",
                '{"nodes", "choice"',
                '{"rules", "nodes", "choice"',
            ),
            (
                "the links' counters are not stored",
                '"first_entry", "entries_of_groups"',
                '"first_entry", "entries_of_groups", "links"',
            ),
        ],
    ),
    *faults(
        "sim/checkpoint/live.py",
        [C + "test_resume.py"],
        [
            (
                "what encoders remember is left out",
                'return ["state", self._writer.write(dict(value.state()))]',
                'return ["state", self._writer.write({})]',
            ),
            (
                "lists that others hold are replaced",
                "            old[:] = new",
                "            setattr(owner, name, new)",
            ),
        ],
    ),
    *faults(
        "sim/checkpoint/keeper.py",
        [C + "test_resume.py", C + "test_store.py"],
        [
            (
                "a state of another variant is taken",
                "return state if state.variant == self._variant else None",
                "return state",
            ),
            (
                "a state is due a step late",
                "self._steps >= self._every",
                "self._steps > self._every",
            ),
            (
                "what workloads hold is not put back",
                "workload.restore(reader.read(stored))",
                "reader.read(stored)",
            ),
        ],
    ),
    *faults(
        "sim/checkpoint/store.py",
        [C + "test_store.py"],
        [
            (
                "flipped bits are not found",
                'if head["__metadata__"]["sha256"] != _digest(tensors):',
                'if not head["__metadata__"]["sha256"]:',
            ),
            (
                "states of other versions are read",
                'if kept.get("version") != own["version"]:',
                'if not kept.get("version"):',
            ),
            (
                "files are written in place",
                "files.write_file(self.folder / name, data)",
                "(self.folder / name).write_bytes(data)",
            ),
        ],
    ),
    *faults(
        "sim/run/fault_driver.py",
        [C + "test_resume.py"],
        [
            (
                "changes in force begin again",
                "if moment.time_ps <= done_ps:",
                "if moment.time_ps < 0:",
            ),
        ],
    ),
    *faults(
        "sim/run/keeping.py",
        [C + "test_resume.py"],
        [
            (
                "a job within a step is stored",
                "if not all(one.training.is_between_steps for one in self._running):",
                "if not self._running:",
            ),
        ],
    ),
]
