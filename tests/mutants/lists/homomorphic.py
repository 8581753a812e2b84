"""Faults of encodings."""

from __future__ import annotations

from tests.mutants.mutant import Harmless, Mutant, faults

H = "tests/homomorphic/"

MUTANTS: list[Mutant] = [
    *faults(
        "homomorphic/numbers/digits.py",
        [H + "numbers/test_digits.py"],
        [
            (
                "the limit of infinite sums is two exponents too high",
                "ranges.tops[block] + ranges.sum_bits >= _INFINITE_EXPONENT",
                "ranges.tops[block] + ranges.sum_bits > _INFINITE_EXPONENT + 1",
            ),
            ("a value's lowest bit is one too high", "+ zeros - np.int32(150)", "+ zeros - np.int32(149)"),
            (
                "a digit has no sign",
                "np.trunc(value * scale) - radix * np.trunc(value * above)",
                "np.trunc(value * scale) - radix * np.floor(value * above)",
            ),
            (
                "sums are rounded twice",
                "np.int64(0) if error == 0 or is_odd else step",
                "np.int64(0) if error == 0 or not is_odd else step",
            ),
            (
                "carries of three digits go one plane too low",
                "top = np.int32(high[i] + (above >> bits))",
                "top = np.int32(high[i] + (digit >> bits))",
            ),
            (
                "a carry leaves its digit as it was",
                "below[i] = np.int32(digit & mask)",
                "below[i] = np.int32(digit)",
            ),
            (
                "digits a block does not need are left as they were",
                "                    block_words[:] = 0\n",
                "                    pass\n",
            ),
            (
                "a group's words begin at those of the group before",
                "        position += planes * members",
                "        position += members",
            ),
        ],
    ),
    *faults(
        "homomorphic/numbers/exact.py",
        [H + "numbers/test_digits.py", H + "codecs/test_concurrent.py"],
        [
            (
                "digits leave no room for the last worker",
                "sum_bits = (workers - 1).bit_length()",
                "sum_bits = max(workers - 2, 0).bit_length()",
            ),
            (
                "a forecast covers what is lower than it",
                "(mine.lows <= other.lows)",
                "(mine.lows <= other.lows + 1)",
            ),
            ("NaN is announced", ">= _INFINITY_BITS:", "> _INFINITY_BITS + (1 << 22):"),
        ],
    ),
    *faults(
        "homomorphic/numbers/exponents.py",
        [H + "numbers/test_exponents.py", H + "codecs/test_dense.py"],
        [
            (
                "256 workers have the scale of 255",
                "2147483647.0 if workers <= 255 else",
                "2147483647.0 if workers <= 256 else",
            ),
            (
                "an exponent is one too small",
                "(largest >> 23) - np.int32(_EXPONENT_BIAS)",
                "(largest >> 23) - np.int32(_EXPONENT_BIAS + 1)",
            ),
            (
                "values are cut off, not rounded",
                "product = np.rint(value * scale)",
                "product = np.trunc(value * scale)",
            ),
            (
                "products beyond int32 wrap",
                "return np.int32(product) if is_held",
                "return np.int32(np.int64(product) & 0xFFFFFFFF) if is_held or abs(product) < 9e18",
            ),
            (
                "the last exponent that fits is refused",
                "exponents.max() > largest_exponent(workers)",
                "exponents.max() >= largest_exponent(workers)",
            ),
            (
                "a block of zeros announces the smallest exponent",
                "    exponents[largest == 0] = empty_exponent(workers)\n",
                "",
            ),
            (
                "the smallest exponent has no finite scale",
                "return -96 - (workers - 1).bit_length()",
                "return -98 - (workers - 1).bit_length()",
            ),
            (
                "half a step per worker counts once",
                "workers * 2.0 ** (spare_bits - 1) / scale_of",
                "2.0 ** (spare_bits - 1) / scale_of",
            ),
        ],
    ),
    *faults(
        "homomorphic/numbers/exponents.py",
        [H + "numbers/test_numbers.py", H + "codecs/test_values.py"],
        [
            (
                "blocks begin where the first one does",
                "first, last = starts[block] - starts[0], starts[block + 1] - starts[0]\n        block_values = values",
                "first, last = starts[block], starts[block + 1]\n        block_values = values",
            ),
        ],
    ),
    *faults(
        "homomorphic/numbers/block_exponent.py",
        [H + "codecs/test_values.py", H + "codecs/test_concurrent.py", H + "numbers/test_numbers.py"],
        [
            (
                "a forecast covers exponents that are larger than it",
                "(excess >= 0) & (excess <= SPARE_BITS)",
                "(excess >= -1) & (excess <= SPARE_BITS)",
            ),
            (
                "a forecast is as small as the last exponent",
                "largest + np.int32(1), np.int32(exponents",
                "largest, np.int32(exponents",
            ),
        ],
    ),
    *faults(
        "homomorphic/numbers/maxima.py",
        [
            H + "sketch/test_forecast.py",
            H + "codecs/test_damage.py",
            H + "numbers/test_digits.py",
            H + "numbers/test_exponents.py",
        ],
        [
            ("a maximum at its limit is refused", "(merged > limit)", "(merged >= limit)"),
            (
                "an empty block takes its left neighbour's maximum alone",
                "np.maximum(largest[before], largest[known[np.minimum(after, known.size - 1)]])",
                "largest[before]",
            ),
        ],
    ),
    *faults(
        "homomorphic/kernels/keyed.py",
        [H + "kernels/test_keyed.py"],
        [
            (
                "the mixer's last shift is 30",
                "    return z ^ (z >> np.uint64(31))",
                "    return z ^ (z >> np.uint64(30))",
            ),
            (
                "values count without their order",
                "state = splitmix64(state ^ np.uint64(value))",
                "state = state ^ splitmix64(np.uint64(value))",
            ),
        ],
    ),
    *faults(
        "homomorphic/message.py",
        ["tests/sim/run/test_lock_step.py", H + "test_fold.py"],
        [
            (
                "messages of different lengths are alike",
                "None if self.merge in (Merge.GATHER, Merge.HOST) else self.size",
                "None",
            ),
        ],
    ),
    *faults(
        "homomorphic/merge.py",
        [H + "test_merge.py", H + "test_sign.py"],
        [
            ("the probability of a bit is rounded down", " + total // 2) // total", ") // total"),
            ("MAX keeps the smaller", "max(accumulator[i], words[i])", "min(accumulator[i], words[i])"),
            (
                "SIGN keeps what it should take",
                "taken = differing & ~random_lanes",
                "taken = differing & random_lanes",
            ),
            (
                "the highest binary digit of a probability is left out",
                "    for digit in range(32):\n        if (threshold",
                "    for digit in range(31):\n        if (threshold",
            ),
            (
                "the highest code of a word is that of the seventh",
                "table[(word >> np.uint32(CODE_BITS * j)) & _CODE_MAX]",
                "table[(word >> np.uint32(CODE_BITS * min(j, 6))) & _CODE_MAX]",
            ),
            (
                "a merge of many counts one worker at a time",
                "_merge_into(merge, accumulator, words, (workers, 1, mix_plain(key, workers)), lane_bits)",
                "_merge_into(merge, accumulator, words, (1, 1, mix_plain(key, workers)), lane_bits)",
            ),
        ],
    ),
    *faults(
        "homomorphic/merge.py",
        [H + "test_merge.py"],
        [
            (
                "hosts carry from lane to lane",
                "add_words(lanes_of(accumulator, lane_bits), lanes_of(words, lane_bits))",
                "add_words(accumulator, words)",
            ),
            (
                "codes are lifted to 16 bits where 8 are wanted",
                "    if lane_bits == 8:\n        _look_up(words, table, lifted.view(np.int8))",
                "    if lane_bits == 8:\n        _look_up(words[: words.size // 2], table, lifted.view(np.int16))",
            ),
        ],
    ),
    *faults(
        "homomorphic/message.py",
        [H + "test_merge.py"],
        [
            (
                "a table may have one more than its lanes hold",
                "most = 2 ** (lane_bits - 1) - 1",
                "most = 2 ** (lane_bits - 1)",
            ),
            (
                "lanes of two widths are of one kind",
                "self.floats is None, self.lane_bits",
                "self.floats is None, 32",
            ),
        ],
    ),
    *faults(
        "homomorphic/codec.py",
        [H + "test_merge.py"],
        [
            (
                "a counter of 4 bits has room for 16 votes",
                "return 2**COUNTER_BITS - 1 if",
                "return 2**COUNTER_BITS if",
            ),
        ],
    ),
    *faults(
        "homomorphic/contract.py",
        [H + "test_merge.py"],
        [
            (
                "messages may have any lanes",
                "    if message.lane_bits != wanted:",
                "    if message.lane_bits > 32:",
            ),
        ],
    ),
    *faults(
        "homomorphic/sketch/sketch.py",
        [H + "codecs/sketched/test_lossless.py", H + "sketch/test_tables.py"],
        [
            (
                "tables of any size go through the fast kernels",
                "and self._is_single and is_small",
                "and self._is_single",
            ),
            (
                "floats go through the fast kernels if they are single",
                "return words.dtype == np.int32 and self._is_single",
                "return self._is_single",
            ),
            (
                "a tile's table has the bucket's key",
                "splitmix64_plain(int(mine.key) + tile)",
                "splitmix64_plain(int(mine.key))",
            ),
        ],
    ),
    *faults(
        "homomorphic/sketch/tables.py",
        [H + "sketch/test_tables.py", H + "codecs/sketched/test_lossless.py"],
        [
            (
                "32 members fit a cell",
                "return bool((seen & _CROWDED) == 0)",
                "return bool((seen & (_CROWDED << _ONE)) == 0)",
            ),
            (
                "a tile passes with something left",
                "    return bool(left == 0)",
                "    return bool((left & _DEGREE) == 0)",
            ),
            (
                "a member leaves its third counter as it was",
                "            cells[c] -= single\n",
                "            cells[c] -= single & (_DEGREE | _NUMBER)\n",
            ),
            (
                "small tables have no spare counters",
                "np.ceil(members / load) + EXTRA_COUNTERS",
                "np.ceil(members / load)",
            ),
            ("tiles share a key", "splitmix64(tables.key + np.uint64(tile))", "splitmix64(tables.key)"),
        ],
    ),
    *faults(
        "homomorphic/sketch/hashing.py",
        [H + "sketch/test_hashing.py"],
        [
            ("MurmurHash has another last multiplier", "np.uint32(0xC2B2AE35)", "np.uint32(0xC2B2AE3D)"),
            (
                "second and third segment coincide",
                "np.uint32(size + size + scaled",
                "np.uint32(size + scaled",
            ),
            ("lanes do not turn", "_TURN_SEED) + number", "_TURN_SEED) + np.uint64(0) * number"),
            (
                "signs come from the second bit",
                "(murmur3(block, j) >> np.uint32(31))",
                "((murmur3(block, j) >> np.uint32(30)) & np.uint32(1))",
            ),
        ],
    ),
    *faults(
        "homomorphic/sketch/hypergraph.py",
        [H + "sketch/test_hypergraph.py", H + "codecs/sketched/test_released.py"],
        [
            ("estimates are the largest of three", "max(min(a, b), min(max(a, b), c))", "max(a, b, c)"),
            ("flags of members are not cleared", "0xFFFFFFFE if is_flagged", "0xFFFFFFFF if is_flagged"),
            (
                "rounds count those in which nothing comes out",
                "rounds += int(recovered > recovered_before)",
                "rounds += 1",
            ),
            (
                "a negated word is taken out as it stands",
                "sums[m] = -alone if (negative >> order.hashes[i]) & 1 else alone",
                "sums[m] = -alone if negative & 1 else alone",
            ),
        ],
    ),
    *faults(
        "homomorphic/sketch/tiled.py",
        [H + "codecs/test_concurrent.py", H + "codecs/sketched/test_lossless.py", H + "codecs/test_auto.py"],
        [
            (
                "a tile that fails is not sent again",
                "layout.within(failed | missed, union)",
                "layout.within(missed, union)",
            ),
            (
                "tiles whose numbers do not suit them are kept",
                "layout.per_tile(np.where(is_covered, 0, members)) > 0",
                "layout.per_tile(np.where(is_covered, 0, 0)) > 0",
            ),
            (
                "a tile is sent whole only where that is smaller",
                "rows[table_words >= whole_words] = 0",
                "rows[table_words > whole_words + 1] = 0",
            ),
            (
                "rounds share a key",
                "key = mix_plain(round.seed, round.step, round.bucket)",
                "key = mix_plain(round.seed, 0, round.bucket)",
            ),
        ],
    ),
    *faults(
        "homomorphic/sketch/forecast.py",
        [H + "sketch/test_forecast.py"],
        [
            (
                "a round eight steps ago counts",
                "round.step - record.step < STEPS",
                "round.step - record.step <= STEPS",
            ),
            ("margins are two standard deviations", "3 * np.sqrt(members)", "2 * np.sqrt(members)"),
        ],
    ),
    *faults(
        "homomorphic/index/bloom.py",
        [H + "index/test_bloom.py"],
        [
            (
                "a turn of 0 loses a word",
                "(word >> (-turn & np.uint64(63)))",
                "(word >> (np.uint64(63) - turn))",
            ),
            (
                "a slice is hashed as if it were the first",
                "splitmix64(key + np.uint64(first_word + w))\n            for",
                "splitmix64(key + np.uint64(w))\n            for",
            ),
        ],
    ),
    *faults(
        "homomorphic/index/membership.py",
        [H + "index/test_membership.py", H + "codecs/test_damage.py"],
        [
            ("bits beyond the last element count", "    union[-1] &= ~_beyond(scan.elements)\n", ""),
            (
                "the last word's bits beyond the end are one too few",
                "2 ** ((count - 1) % WORD_ELEMENTS + 1)",
                "2 ** (count % WORD_ELEMENTS + 1)",
            ),
            (
                "a merged index that lacks members passes",
                "    if missing < sent.size:\n",
                "    if missing < sent.size - 1:\n",
            ),
        ],
    ),
    *faults(
        "homomorphic/index/members.py",
        [H + "index/test_members.py", H + "codecs/sparse/test_packed.py"],
        [
            (
                "members before a block are counted with it",
                "        starts[block] = members\n        words = index[block * block_words : (block + 1) * block_words]\n        for w in range(words.size):\n            members += int(popcount(words[w]))\n",
                "        words = index[block * block_words : (block + 1) * block_words]\n        for w in range(words.size):\n            members += int(popcount(words[w]))\n        starts[block] = members\n",
            ),
            (
                "zero is not written where no member is",
                "                    own[i] = np.float32(0)\n",
                "                    own[i] = own[i]\n",
            ),
            (
                "an infinity is told of every chunk's last alone",
                "return int(infinite.sum())",
                "return int(infinite[-1:].sum())",
            ),
        ],
    ),
    *faults(
        "homomorphic/numbers/factor.py",
        [H + "codecs/test_dense.py"],
        [
            ("the largest word that fits is refused", "np.abs(scaled) <= limit", "np.abs(scaled) < limit"),
            (
                "decoded floats are scaled",
                "merged.words.view(np.float32)[merged.is_float]",
                "merged.words.view(np.float32)[merged.is_float] / np.float32(factor)",
            ),
        ],
    ),
    *faults(
        "homomorphic/codecs/dense/kinds.py",
        [H + "codecs/test_dense.py"],
        [
            (
                "blocks of digits may have any size",
                "            check_block_elements(block_elements, WORD_ELEMENTS)",
                "            pass",
            ),
            (
                "the network's unit is the block whatever is written",
                "block_elements=self.block_elements or carrier.unit_elements",
                "block_elements=carrier.unit_elements",
            ),
        ],
    ),
    *faults(
        "homomorphic/fold.py",
        [H + "test_fold.py"],
        [
            (
                "a sum at the limit is sent as an integer",
                "is_float |= np.abs(total) >= WORD_MAX",
                "is_float |= np.abs(total) > WORD_MAX",
            ),
        ],
    ),
    *faults(
        "homomorphic/codecs/sparse/block_sparse.py",
        [H + "codecs/sparse/test_block_sparse.py", H + "codecs/test_damage.py"],
        [
            (
                "columns begin with their second block",
                "return np.arange(self._columns)",
                "return np.arange(1, self._columns + 1)",
            ),
            (
                "a next block that would leave one out passes",
                "(current < chosen) & (chosen < own)",
                "(current < chosen) & (chosen != own)",
            ),
        ],
    ),
    *faults(
        "homomorphic/codecs/auto/costs.py",
        [H + "codecs/test_auto.py"],
        [
            (
                "an index costs a bit per 31 elements",
                "(_plain(-(-counts.elements // 32), counts.agreed_words), _plain(counts.member_words)),\n        counts.scanned_bytes + 6",
                "(_plain(-(-counts.elements // 31), counts.agreed_words), _plain(counts.member_words)),\n        counts.scanned_bytes + 6",
            ),
        ],
    ),
]
HARMLESS: list[Harmless] = [
    Harmless(
        "homomorphic/numbers/digits.py",
        "ranges.tops[block] + ranges.sum_bits >= _INFINITE_EXPONENT",
        "ranges.tops[block] + ranges.sum_bits > _INFINITE_EXPONENT",
        "With top + sum_bits = 128, n <= 2**sum_bits values of at most 2**top · (1 - 2**-24) add up to at most "
        "2**128 · (1 - 2**-24), the largest float32: no sum is infinite, so not counting them changes nothing.",
    ),
    *faults(
        "homomorphic/merge.py",
        ["tests/homomorphic/test_fold.py"],
        [
            (
                "an aggregate of nobody is merged",
                "    if arriving.workers:\n        words = operand",
                "    if True:\n        words = operand",
            ),
            (
                "the maximum of nobody is 0",
                "np.iinfo(np.int32).min if merge is Merge.MAX else 0",
                "0",
            ),
            (
                "contributors are those of one side",
                "accumulated.present | arriving.present",
                "accumulated.present",
            ),
        ],
    ),
    *faults(
        "homomorphic/numbers/stage.py",
        ["tests/homomorphic/test_fold.py"],
        [("exponents that nobody announced are 0", "    if merged.workers == 0:\n", "    if False:\n")],
    ),
]
