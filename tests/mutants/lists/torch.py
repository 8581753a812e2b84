"""Faults of the communication hook and of FSDP2's reduce-scatter."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

T = "tests/torch/"

MUTANTS: list[Mutant] = [
    *faults(
        "netfold/torch/rounds.py",
        [T + "test_simulated.py", T + "test_failures.py", T + "test_codecs.py"],
        [
            (
                "messages that do not travel count for random draws",
                "self.messages += is_carried(message)",
                "self.messages += 1",
            ),
            (
                "updates are scaled like sums",
                "        if decoded.is_update:\n            return decoded.total\n",
                "",
            ),
            (
                "the learning rate is rounded before it is divided",
                "np.float32(self._rate(step) / workers)",
                "np.float32(np.float32(self._rate(step)) / np.float32(workers))",
            ),
            (
                "a codec sees every step as the first",
                "self.encoder.begin(Step(round.step, rate))",
                "self.encoder.begin(Step(0, rate))",
            ),
            (
                "a codec does not know the tensors",
                "notes.append, part.tensors\n",
                "notes.append, ()\n",
            ),
        ],
    ),
    *faults(
        "netfold/torch/merging.py",
        [T + "test_merging.py"],
        [
            (
                "absent workers take part in sums of their own words",
                "unchanged_by(message.merge, message.size) if message.is_absent else message.words",
                "np.ones(message.size, np.int32) if message.is_absent else message.words",
            ),
            (
                "lanes of 8 bits carry into the next",
                "return lanes.view(np.int8) if message.lane_bits == 8 else None",
                "return lanes",
            ),
            (
                "a worker without words has no say in a host merge",
                "[size > 0 or message.merge in _ALL for size in sizes]",
                "[size > 0 for size in sizes]",
            ),
            (
                "lifted shares are taken to be as long as codes",
                "(end - begin) * message.merged_words for",
                "(end - begin) for",
            ),
        ],
    ),
    *faults(
        "netfold/torch/agreement.py",
        [T + "test_failures.py"],
        [
            (
                "decoded bits are not compared",
                'f"{total.size} {bits} {sent.is_update}"',
                'f"{total.size} {sent.is_update}"',
            ),
            (
                "messages beyond the first six are not compared",
                "    if most > _ROOM:",
                "    if most > 99:",
            ),
        ],
    ),
    *faults(
        "netfold/torch/assembly.py",
        [T + "test_modes.py", T + "test_simulated.py", T + "test_codecs.py"],
        [
            (
                "the layout begins with the first parameters",
                "for one in reversed(self._waiting) for parameter in one.parameters",
                "for one in self._waiting for parameter in one.parameters",
            ),
            (
                "rounds run in the order in which DDP hands in parameters",
                "complete = sorted(bucket for one in waiting for bucket in self._put(one))",
                "complete = [bucket for one in waiting for bucket in self._put(one)]",
            ),
            (
                "a loaded state does not look at the model",
                "        if self._expected is None:\n            return\n",
                "        return\n",
            ),
        ],
    ),
    *faults(
        "netfold/torch/state.py",
        [T + "test_modes.py", T + "test_failures.py"],
        [
            (
                "a resumed training draws as the first did",
                'int(state["step"]), int(state["messages"])',
                'int(state["step"]), 0',
            ),
            (
                "what is remembered is not loaded",
                '            self._rounds.encoder.restore(_arrays(state["encoder"]))\n',
                "",
            ),
            (
                "a server's part is not loaded",
                '                self._rounds.server.restore(_arrays(state["server"]))',
                "                pass",
            ),
            ("messages wait for half an hour", "_timeout_of(group), backend", "None, backend"),
            (
                "an error is raised before DDP is done",
                "_at_end_of_backward(partial(_at_end_of_backward, self._end_backward))",
                "_at_end_of_backward(self._end_backward)",
            ),
        ],
    ),
]
