"""Faults of one-bit codecs: `marsit`, `cascaded_sign`, and what holds them to a promise."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

SIGNS = "tests/homomorphic/codecs/signs/"
MARSIT = [SIGNS + "test_marsit.py", SIGNS + "test_virtual_iterate.py"]
CASCADED = [SIGNS + "test_cascaded_sign.py"]
COLLECTIVES = ["tests/sim/collectives/test_marsit.py"]
DUPLICATES = ["tests/sim/engine/transports/test_words_kept.py"]

MUTANTS: list[Mutant] = [
    *faults(
        "homomorphic/codecs/signs/marsit.py",
        MARSIT,
        [
            (
                "full precision forgets what is held back",
                "owed = gradient if held is None else gradient + held",
                "owed = gradient",
            ),
            (
                "what is held back stays after full precision",
                "        self._residuals.pop(round.bucket, None)\n",
                "",
            ),
            (
                "compensation is against the worker's own signs",
                "keep_rest(merged.words, ",
                "keep_rest(words, ",
            ),
            (
                "what is held back is not in the signs",
                "            pack_owed(np.ascontiguousarray(gradient), held, words)",
                "            pack_signs(gradient, words)",
            ),
            (
                "an update is a sum",
                "Decoded(total, contribution, is_update=True)",
                "Decoded(total, contribution)",
            ),
            ("the default step has another factor", "_MEANS = 2 ", "_MEANS = 1 "),
            (
                "the mean is that of what is owed",
                "np.float32(np.abs(gradient).mean(dtype=np.float64))",
                "np.float32(np.abs(owed).mean(dtype=np.float64))",
            ),
            (
                "sums are judged as updates",
                "return self if is_update else self.dense",
                "return self",
            ),
            (
                "the variance is one of no agreement",
                "(sums.magnitude - sums.total) * (sums.magnitude + sums.total)",
                "sums.total * sums.total * 0",
            ),
            (
                "where all agree anything is allowed",
                "np.where(size < sums.magnitude, sums.magnitude + size, 0.0)",
                "sums.magnitude + size",
            ),
            ("another rate leaves units as they were", "np.float32(self._rate / rate)", "np.float32(1)"),
        ],
    ),
    *faults(
        "homomorphic/codecs/signs/bits.py",
        MARSIT,
        [
            (
                "the sign of the last sums is the gradient's",
                "np.uint32(own[j] + held[j] >= np.float32(0))",
                "np.uint32(own[j] >= np.float32(0))",
            ),
            (
                "zero is negative",
                "np.uint32(some[j] >= np.float32(0))",
                "np.uint32(some[j] > np.float32(0))",
            ),
            (
                "the gradient is not held back",
                "held[j] = (own[j] + held[j]) - taken",
                "held[j] = held[j] - taken",
            ),
        ],
    ),
    *faults(
        "homomorphic/codecs/signs/cascaded_sign.py",
        CASCADED,
        [
            (
                "the smaller scale decides",
                "self.bits if self.scale > other.scale else other.bits",
                "other.bits if self.scale > other.scale else self.bits",
            ),
            (
                "a merged scale is the sum of both",
                "Part(self.elements, np.float32(total / self.elements), bits)",
                "Part(self.elements, np.float32(large + small), bits)",
            ),
            ("a tie is negative", "bits = self.bits | other.bits", "bits = self.bits & other.bits"),
        ],
    ),
    *faults(
        "sim/checks/rounds/examine.py",
        COLLECTIVES,
        [
            (
                "all rounds of a codec keep its own promise",
                "judge = codec.judged_by(decoded[0].is_update)",
                "judge = codec",
            ),
        ],
    ),
    *faults(
        "switch/programs/switchml.py",
        DUPLICATES,
        [
            (
                "a packet that came before is merged again",
                "        return verdict, READ\n",
                "        return verdict, MERGE\n",
            ),
        ],
    ),
    *faults(
        "sim/collectives/in_network/placement/switches.py",
        COLLECTIVES,
        [
            (
                "no codec is named for a switch that cannot merge signs",
                'if error.about == "merges" and request.instead:',
                'if error.about == "merges" and not request.instead:',
            ),
        ],
    ),
]
