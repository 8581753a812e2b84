"""Faults of SASG: the rule, uploads and their feedback, the server's sums, sums on the way."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

S = "tests/homomorphic/codecs/sasg/"
RULE, UPLOADS = [S + "test_rule.py"], [S + "test_uploads.py"]
SERVER = [S + "test_server.py"]

MUTANTS: list[Mutant] = [
    *faults(
        "homomorphic/codecs/sasg/rule.py",
        RULE,
        [
            ("D differences are summed", "deque(maxlen=staleness - 1)", "deque(maxlen=staleness)"),
            (
                "a worker waits a step longer",
                "self._waited > self._staleness",
                "self._waited > self._staleness + 1",
            ),
            (
                "the warm start is a step shorter",
                "self._steps < self._staleness",
                "self._steps < self._staleness - 1",
            ),
            ("norms are not squared", "step.update_norm**2", "step.update_norm"),
            ("the threshold is divided by M", "alpha / self._workers**2 *", "alpha / self._workers *"),
            (
                "weights are kept in every step",
                "        if self.uploads:\n            self._waited = 1\n",
                "        if self.uploads:\n            self._waited = 1\n        if True:\n",
            ),
            (
                "γ is the learning rate",
                "np.float32(step.learning_rate / self._workers)",
                "np.float32(step.learning_rate)",
            ),
            (
                "only the first bucket is compared",
                "for now, then in pairs)",
                "for now, then in list(pairs)[:1])",
            ),
        ],
    ),
    *faults(
        "homomorphic/codecs/sasg/uploads.py",
        UPLOADS,
        [
            ("counts are rounded up", "math.floor(share * elements)", "math.ceil(share * elements)"),
            ("what is sent is held back too", "owed[place] -= values if", "owed[place] -= 0 * values if"),
            (
                "what was held back is forgotten",
                "                owed += held\n",
                "                owed += 0 * held\n",
            ),
            ("tensors are not apart", "round.tensors_of(owed)", "round.tensors_of(owed)[:1]"),
            ("differences may leave int32", "WORD_MAX // (2 * self.workers)", "WORD_MAX // self.workers"),
        ],
    ),
    *faults(
        "homomorphic/codecs/sasg/server.py",
        SERVER,
        [
            ("who skips counts for nothing", "last |= {", "last.clear()\n        last |= {"),
            ("a running sum begins anew", "total[: held.size] = held\n", "total[: held.size] = 0\n"),
            (
                "words belong to the sender",
                "return Entries(elements, entries.values.copy())",
                "return entries",
            ),
        ],
    ),
    *faults(
        "homomorphic/codecs/sasg/lists.py",
        SERVER,
        [
            ("old elements are left out", "np.union1d(place, change.before.elements)", "place"),
        ],
    ),
    *faults(
        "homomorphic/codecs/sasg/summed.py",
        SERVER,
        [
            (
                "who skips sends zeros",
                "            change = self._uploads.upload(gradient, self.rule.rate, round).difference(size)\n",
                "            change = self._uploads.upload(gradient, self.rule.rate, round).difference(size)\n        change = np.zeros(size, np.int32) if change is None else change\n",
            ),
            (
                "lost elements are not noticed",
                "            check_contains(words, united.words)\n",
                "            pass\n",
            ),
            (
                "a sum forgets",
                "            total[members] += merged.words\n",
                "            total[members] = merged.words\n",
            ),
        ],
    ),
]
