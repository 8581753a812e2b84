"""Faults of BIRD: rows, samplings, messages, the server's part, and rows that workers share."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

ROOM = "homomorphic/codecs/bird/"
TESTS = "tests/homomorphic/codecs/bird/"
BIRD, PLUS, SHARED = TESTS + "test_bird.py", TESTS + "test_plus.py", TESTS + "test_shared.py"
NORMS = BIRD + "::test_every_row_keeps_its_l1_norm_in_expectation"
ROUND = BIRD + "::test_a_round_by_the_plain_twin"

MUTANTS: list[Mutant] = [
    *faults(
        ROOM + "sampling.py",
        [NORMS],
        [
            ("the factor of the second sampling is missing", "rows.size / count\n", "1.0\n"),
            (
                "the first sampling squares probabilities",
                "uniforms(key, probabilities.size) < probabilities)",
                "uniforms(key, probabilities.size) < probabilities**2)",
            ),
        ],
    ),
    *faults(
        ROOM + "sampling.py",
        [ROUND],
        [
            (
                "the second sampling keeps the first rows",
                "rows[np.sort(np.argpartition(draws, count - 1)[:count])]",
                "rows[:count]",
            ),
        ],
    ),
    *faults(
        ROOM + "sampling.py",
        [PLUS],
        [
            (
                "gamma 0 keeps rows of zeros",
                "np.where(ratios > 0, exps(logs(ratios), gamma), 0.0)",
                "ratios**gamma",
            ),
            (
                "bisection goes the wrong way",
                "(middle, high) if expected(middle) > wanted else (low, middle)",
                "(middle, high) if expected(middle) < wanted else (low, middle)",
            ),
        ],
    ),
    *faults(
        ROOM + "published.py",
        [NORMS],
        [
            (
                "L2 norms with the scale of L1",
                "norms_of(gradient, group, self.norm)",
                'norms_of(gradient, group, "l2")',
            ),
            (
                "the scale has no number of elements",
                'spread = group.row_elements if self.norm == "l1"',
                'spread = math.sqrt(group.row_elements) if self.norm == "l1"',
            ),
        ],
    ),
    *faults(
        ROOM + "published.py",
        [BIRD + "::test_at_most_a_share_of_the_rows_is_sent"],
        [
            (
                "one row too many is sent",
                "limit = count_of(self.share, group.rows)",
                "limit = count_of(self.share, group.rows) + 1",
            )
        ],
    ),
    *faults(
        ROOM + "gathered.py",
        [ROUND],
        [
            (
                "workers draw the same",
                "place = round.seed, round.step, round.bucket, self.rank\n",
                "place = round.seed, round.step, round.bucket, 0\n",
            ),
            ("layers draw the same", "Draws((*place, number))", "Draws((*place, 0 * number))"),
        ],
    ),
    *faults(
        ROOM + "gathered.py",
        [ROUND],
        [
            (
                "the server leaves out a worker",
                "    for rank, part in enumerate(parts):\n",
                "    for rank, part in enumerate(parts[1:] or parts):\n",
            )
        ],
    ),
    *faults(
        ROOM + "payload.py",
        [BIRD + "::test_layers_without_a_row_do_not_shift_the_scales_of_others"],
        [
            (
                "scales of layers without rows are left out, and those behind them move up",
                "        scales[[group.tensor, *(rider.tensor for rider in group.riders)]] = one.scale\n",
                "        places = [group.tensor, *(rider.tensor for rider in group.riders)]\n"
                "        empty = sum(1 + len(g.riders) for g, k in zip(groups, kept, strict=True) "
                "if not k.rows.size and g.tensor < group.tensor)\n"
                "        if one.rows.size:\n"
                "            scales[np.array(places) - empty] = one.scale\n",
            )
        ],
    ),
    *faults(
        ROOM + "payload.py",
        [BIRD],
        [
            (
                "indices may come twice",
                "(rows[1:] > rows[:-1]).all()",
                "(rows[1:] >= rows[:-1]).all()",
            )
        ],
    ),
    *faults(
        ROOM + "rows.py",
        [ROUND],
        [
            ("signs are LSB first", "word |= int(some[j] < 0) << (31 - j)", "word |= int(some[j] < 0) << j"),
            (
                "a long row leaves out its last elements",
                "            done = own.size // _LANES * _LANES\n            for block in range(own.size // _LANES):\n"
                "                part = own[block * _LANES : block * _LANES + _LANES]\n"
                "                for i in range(_LANES):\n                    lanes[i] += abs(part[i])\n",
                "            done = own.size\n            for block in range(own.size // _LANES):\n"
                "                part = own[block * _LANES : block * _LANES + _LANES]\n"
                "                for i in range(_LANES):\n                    lanes[i] += abs(part[i])\n",
            ),
        ],
    ),
    *faults(
        ROOM + "rows.py",
        [BIRD + "::test_which_tensors_are_rows_and_which_ride"],
        [
            (
                "vectors ride with another layer",
                "carriers.setdefault((tensor.layer, tensor.shape[0]), place)",
                'carriers.setdefault((tensor.layer[:0] or "lstm", tensor.shape[0]), place)',
            )
        ],
    ),
    *faults(
        ROOM + "plus.py",
        [PLUS + "::test_a_layer_keeps_its_l1_norm_in_expectation"],
        [
            (
                "the layer is not rescaled",
                "float(norms.sum()) / (group.row_elements * float(chances.sum())) * factor",
                "float(norms.max()) / group.row_elements * factor",
            )
        ],
    ),
    *faults(
        ROOM + "shared.py",
        [SHARED],
        [
            (
                "every worker draws rows of its own",
                "place = round.step, round.bucket, number, _SHARED\n",
                "place = round.step, round.bucket, number, _SHARED + 2 + self.rank\n",
            ),
            (
                "the scale is that of the sum of norms",
                "largest / (_NORM_MAX * round.workers)",
                "largest / _NORM_MAX",
            ),
            ("other rows are added", "        digest = _digest(chosen)\n", "        digest = 0\n"),
        ],
    ),
    *faults(
        ROOM + "lanes.py",
        [SHARED],
        [
            (
                "fields are a bit too narrow",
                "bits = (2 * workers).bit_length()",
                "bits = max(1, (2 * workers - 1).bit_length() - 1)",
            ),
            (
                "norms are always rounded down",
                "np.int64(draws[i] < values[i] - whole)",
                "np.int64(draws[i] < whole - values[i])",
            ),
        ],
    ),
]
