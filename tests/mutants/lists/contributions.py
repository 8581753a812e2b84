"""Faults of what workers contribute: promises, feedback, the codecs that hold back, and steps as a whole."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

H = "tests/homomorphic/"
PROMISES = [H + "oracle/test_promises.py"]
FEEDBACK = [H + "test_feedback.py"]
TOP_K = [H + "codecs/sparse/test_topk.py"]
RANDOM_K = [H + "codecs/sparse/test_random_k.py"]
MAJORITY = [H + "codecs/signs/test_majority.py"]
BEGIN = ["tests/sim/run/step/test_begin.py"]

MUTANTS: list[Mutant] = [
    *faults(
        "homomorphic/oracle/promises.py",
        PROMISES,
        [
            ("exact sums may be off by a bit", "total != rounded_sums(contributions)[1]", "total != total"),
            ("only the errors' sum counts", "(errors * np.sign(ideal)).sum()", "errors.sum()"),
            (
                "one stretch is all of them",
                "        stretch = first // PART_ELEMENTS\n",
                "        stretch = 0\n",
            ),
            (
                "rounds do not add up",
                "return Drift(self.sums + other.sums, self.variances",
                "return Drift(other.sums, self.variances",
            ),
            (
                "a variance of nothing allows anything",
                "np.where(drift.sums == 0, 0.0, np.inf)",
                "0 * drift.sums",
            ),
        ],
    ),
    *faults(
        "sim/checks/rounds/sums.py",
        PROMISES,
        [
            (
                "exact promises are not checked",
                "if codec.promise is Promise.EXACT:",
                "if codec.promise is Promise.UNBIASED:",
            ),
            (
                "the loss is that of the contributions",
                "for sums in sums_of_parts(totals.gradients):",
                "for sums in sums_of_parts(totals.contributions):",
            ),
        ],
    ),
    *faults(
        "sim/checks/rounds/kernels.py",
        ["tests/sim/checks/test_rounds.py"],
        [
            (
                "an infinite bound passes without an error",
                "off_by / (bound[i] + 5e-324) if bound[i] < np.inf else np.inf",
                "off_by / (bound[i] + 5e-324)",
            ),
        ],
    ),
    *faults(
        "homomorphic/feedback.py",
        FEEDBACK,
        [
            ("a residual is the gradient", "owed - decoded.contribution", "gradient - decoded.contribution"),
            ("a residual is not sent", "owed = gradient + held", "owed = gradient"),
            (
                "the additions are not charged",
                "work.read_bytes + more.read_bytes, work.written_bytes + more.written_bytes",
                "work.read_bytes, work.written_bytes",
            ),
        ],
    ),
    *faults(
        "homomorphic/codecs/sparse/topk.py",
        TOP_K,
        [
            (
                "indices in any order are accepted",
                "elements[-1] < total.size and (elements[1:] > elements[:-1]).all()",
                "elements.max() < total.size",
            ),
            ("tensors begin at 0", "tensor.start + largest(", "0 * tensor.start + largest("),
        ],
    ),
    *faults(
        "homomorphic/codecs/sparse/random_k.py",
        RANDOM_K,
        [
            ("every round has the same elements", "purposes.RANDOM_K, round.step,", "purposes.RANDOM_K, 0,"),
            ("unbiased sums are not scaled", "np.float32(gradient.size / count)", "np.float32(1)"),
            (
                "what is sent is kept too",
                "            return Decoded(bucket.decoded, contribution)\n",
                "            return Decoded(bucket.decoded, 0 * contribution)\n",
            ),
        ],
    ),
    *faults(
        "homomorphic/codecs/signs/majority.py",
        MAJORITY,
        [
            ("a tie is positive", "if balance > 0 else", "if balance >= 0 else"),
            ("zero is negative", "is_positive = value >= 0", "is_positive = value > 0"),
            ("any votes are accepted", "if votes > workers:", "if votes > 15:"),
        ],
    ),
    *faults(
        "sim/run/step/computing.py",
        BEGIN,
        [
            (
                "passes at kept weights are free",
                "yield from self._pass_again(step, worker, self._begin())",
                "self._begin()",
            ),
        ],
    ),
    *faults(
        "sim/run/step/facts.py",
        BEGIN,
        [
            ("a second pass is not counted", "self.more_passes += 1", "self.more_passes += 0"),
            ("weights are not kept", "self._workload.keep_weights(self._worker)", "self._worker"),
        ],
    ),
]
