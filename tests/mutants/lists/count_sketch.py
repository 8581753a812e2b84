"""Faults of count sketches, of selecting the largest, and of the codec that does both."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

LARGEST = ["tests/homomorphic/kernels/test_largest.py"]
COUNTS = ["tests/homomorphic/sketch/test_counts.py"]
CODEC = ["tests/homomorphic/codecs/sketched/test_count_sketch.py"]
FOLDER = "homomorphic/codecs/sketched/count_sketch/"

MUTANTS: list[Mutant] = [
    *faults(
        "homomorphic/kernels/largest.py",
        LARGEST,
        [
            (
                "the last of equal ones are chosen",
                "is_chosen[equal[: count - np.count_nonzero(is_chosen)]] = True",
                "is_chosen[equal[equal.size - count + np.count_nonzero(is_chosen) :]] = True",
            ),
            (
                "the largest is what counts, not its magnitude",
                "np.flatnonzero(_chosen(bits & _MAGNITUDE, count))",
                "np.flatnonzero(_chosen(bits, count))",
            ),
            ("a sample that misleads is believed", "    if least > 1:\n        return None\n", ""),
            ("zeros are never chosen", "[: count - found]\n", "[:0]\n"),
            (
                "far more than the wanted ones are collected",
                "rank = math.ceil(expected + _DEVIATIONS * math.sqrt(expected)) + _DEVIATIONS",
                "rank = math.ceil(4 * expected) + _DEVIATIONS",
            ),
        ],
    ),
    *faults(
        "homomorphic/sketch/counts.py",
        COUNTS,
        [
            ("what runs over the end is lost", "rows.lanes - 1] += beyond", "rows.lanes - 1] += 0 * beyond"),
            ("rows share their hashes", "mix_plain(key, row) for row", "mix_plain(key, 0) for row"),
            (
                "lanes share a sign",
                "(np.uint32(bits) >> np.uint32(lane)) &",
                "(np.uint32(bits) >> np.uint32(0)) &",
            ),
            (
                "the median is one too low",
                "median = own[own.shape[0] // 2]",
                "median = own[max(0, own.shape[0] // 2 - 1)]",
            ),
            (
                "columns are sorted but for one turn",
                "for turn in range(own.shape[0]):",
                "for turn in range(own.shape[0] - 1):",
            ),
            (
                "nothing begins in the last counter",
                "scaled(bits >> _HALF, np.uint64(columns))",
                "scaled(bits >> _HALF, np.uint64(max(1, columns - 1)))",
            ),
            (
                "every task begins with the first block",
                "write_medians(rows, table, first * task // rows.lanes,",
                "write_medians(rows, table, 0,",
            ),
        ],
    ),
    *faults(
        FOLDER + "encoder.py",
        CODEC,
        [
            ("buckets hash alike", "purposes.COUNT_SKETCH, round.bucket)", "purposes.COUNT_SKETCH, 0)"),
            (
                "hashes change from step to step",
                "purposes.COUNT_SKETCH, round.bucket)",
                "purposes.COUNT_SKETCH, round.bucket + 7919 * round.step)",
            ),
            (
                "what is added is not named",
                "digest=zlib.crc32(candidates.tobytes()) if layout.rows else 0,",
                "digest=0,",
            ),
            (
                "rounded values are contributed whole",
                "_at(elements, added.own[own], gradient)",
                "_at(elements, values[own], gradient)",
            ),
            (
                "the first candidates are chosen",
                "own = largest(added.sums, layout.chosen)",
                "own = np.arange(layout.chosen)",
            ),
            (
                "estimates of zero take values away",
                "elements = elements[estimates[elements] != 0]",
                "elements = elements[estimates[elements] != 1e-30]",
            ),
            ("estimates are not noted", "    if elements.size:\n", "    if elements.size < 0:\n"),
        ],
    ),
    *faults(
        FOLDER + "codec.py",
        CODEC,
        [
            ("rows may be even", "self.rows < 1 or self.rows % 2 == 0", "self.rows < 1"),
            (
                "no bucket is sent whole",
                "if self.rows * columns + candidates >= elements:",
                "if self.rows * columns + candidates < 0:",
            ),
            ("sums may be 16 times off the bound", "off_by = _U * sums", "off_by = 16 * _U * sums"),
        ],
    ),
    *faults(
        FOLDER + "momentum.py",
        CODEC,
        [
            ("what was chosen keeps its momentum", "        if self.is_masked:\n", "        if False:\n"),
            (
                "momentum does not grow",
                "        velocity += gradient\n",
                "        velocity = gradient.copy()\n",
            ),
        ],
    ),
]
