"""Faults of what verifies a run, and of the bounds that it is held to."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

LIMITS = ["tests/sim/checks/test_checks_limits.py", "tests/sim/checks/test_checks.py"]
SIGNS = ["tests/sim/checks/test_signs.py"]
CONTROLS = "tests/sim/checks/test_merge_controls.py"
VERIFY = ["tests/sim/checks/test_round_words.py", "tests/sim/checks/test_rounds.py"]

MUTANTS: list[Mutant] = [
    *faults(
        "sim/checks/network.py",
        LIMITS,
        [
            (
                "links out of switches need not conserve bytes",
                "if link.bytes != accounted:",
                "if link.bytes != accounted and link.source.startswith('h'):",
            ),
            (
                "a link may be busy for half of its bytes",
                "< link.bytes * 8 * 10**12",
                "< link.bytes * 4 * 10**12",
            ),
            (
                "what is in flight need not be accounted for",
                "link.lost_bytes + link.in_flight_bytes\n",
                "link.lost_bytes + max(link.in_flight_bytes, link.bytes - link.delivered_bytes - link.lost_bytes)\n",
            ),
            (
                "a switch may send one packet too many",
                "if not least <= left <= most:",
                "if not least <= left <= most + 1:",
            ),
            (
                "a switch may swallow one packet",
                "if not least <= left <= most:",
                "if not least - 1 <= left <= most:",
            ),
            ("a result counts as one packet", "to_one + to_all * receivers", "to_one + to_all"),
        ],
    ),
    *faults(
        "sim/checks/job.py",
        LIMITS,
        [
            (
                "sums may be ten times off the bound",
                "if record.max_error_over_bound <= 1.0:",
                "if record.max_error_over_bound <= 10.0:",
            ),
            (
                "a sum at its bound is wrong",
                "if record.max_error_over_bound <= 1.0:",
                "if record.max_error_over_bound < 1.0:",
            ),
            (
                "any failed check of an unfinished job is stuck",
                "if check.name in unfinished and check.verdict",
                "if check.verdict",
            ),
            (
                "one lost round is none",
                "Finding(len(journal.rounds) == expected, detail)",
                "Finding(len(journal.rounds) >= expected - 1, detail)",
            ),
            ("notes need not agree", "    if unlike and not bad:\n", "    if unlike and bad:\n"),
            (
                "words that adders clipped are never wrong",
                "return 0 if record.redone_parts or record.forecast_misses else findings.clipped_words",
                "return 0",
            ),
            (
                "float words are never wrong",
                '    if not wrong:\n        return Finding(True, f"all {words} merged',
                '    if not wrong or words:\n        return Finding(True, f"all {words} merged',
            ),
        ],
    ),
    *faults(
        "sim/checks/leaks.py",
        LIMITS,
        [
            (
                "what no fault explains is no failure",
                "    if not causes:\n",
                "    if not causes and not ending.leaks:\n",
            ),
            (
                "one late packet explains any number of slots",
                "    if most < len(ending.leaks):\n",
                "    if most < 1:\n",
            ),
            (
                "a tree overtakes itself",
                "if fate.name.lower() in program.reopened_by and",
                "if (fate in _DID and program.reopened_by) and",
            ),
            ("copies on any link explain what is left", "and links & set(hit):", ":"),
            ("a fault that struck nothing explains it", "        if record.count\n", "        if True\n"),
        ],
    ),
    *faults(
        "sim/checks/rounds/merges/integers.py",
        VERIFY,
        [
            (
                "wrong exponents are not counted",
                "        result.wrong.add(count, result.wrong_word(place, word, (None, None)))\n\n\nclass",
                "        result.wrong.add(0, result.wrong_word(place, word, (None, None)))\n\n\nclass",
            ),
            (
                "words sent as floats hide their packets' integers",
                "found = np.where(merged.is_float[own.merged], right, found)",
                "found = right",
            ),
            (
                "what saturates may be anything",
                "return np.asarray((above & below) | ((above | below) & is_between))",
                "return np.asarray(above | below)",
            ),
            (
                "a maximum begins at zero",
                "            elif rank != self._first_rank:\n                np.maximum",
                "            elif rank >= 0:\n                np.maximum",
            ),
        ],
    ),
    *faults(
        "sim/checks/rounds/merges/integers.py",
        ["tests/sim/checks/test_round_lanes.py"],
        [
            (
                "lanes are clipped where words are",
                "int(np.iinfo(self.lane).max), int(np.iinfo(self.lane).min)",
                "2**31 - 1, -(2**31)",
            ),
            (
                "lanes are compared as sums of words",
                "self.lane = _LANE_TYPES.get(first.lane_bits, np.int32)",
                "self.lane: Any = np.int32",
            ),
            (
                "a wrong lane is named by its place in all",
                "divmod(first, own.lanes // own.merged_words)",
                "divmod(first, 1)",
            ),
        ],
    ),
    *faults(
        "sim/checks/rounds/merges/floats.py",
        VERIFY,
        [
            (
                "float sums are held to all workers' additions",
                "np.maximum(held.astype(np.float64) - 1, 0)",
                "np.maximum(held.astype(np.float64) + 2, 0)",
            ),
        ],
    ),
    *faults(
        "sim/checks/rounds/kernels.py",
        VERIFY,
        [
            (
                "a lost NaN is right",
                "                is_right = np.isnan(found[i])\n",
                "                is_right = True\n",
            ),
            (
                "an infinity that was sent may turn into any other",
                "is_right = found[i] == total[i] or (may_overflow and np.isnan(found[i]))",
                "is_right = not np.isfinite(found[i])",
            ),
            (
                "additions do not round up on the way to an overflow",
                "may_overflow = magnitude[i] + allowed[i] >= FLOAT_MAX",
                "may_overflow = magnitude[i] >= FLOAT_MAX",
            ),
            (
                "an infinite bound allows any error",
                "(bound[i] + 5e-324) if bound[i] < np.inf else np.inf",
                "(bound[i] + 5e-324) if bound[i] < np.inf else 0.0",
            ),
            (
                "scaled words are cut off, not rounded",
                "np.int64(np.rint(own[i] * scale))",
                "np.int64(np.trunc(own[i] * scale))",
            ),
        ],
    ),
    *faults(
        "homomorphic/bounds.py",
        ["tests/homomorphic/test_bounds.py"],
        [
            (
                "float sums may be 16 times off the bound",
                "(additions * ((_U + _V) * (1 + 2.0**-40)))",
                "(additions * ((16 * _U + _V) * (1 + 2.0**-40)))",
            ),
            (
                "a float sum of n has n additions",
                "addition_error(self.workers - 1, sums.magnitude)",
                "addition_error(2 * self.workers, sums.magnitude)",
            ),
            ("an addition has no smallest denormal", "    allowed += additions * TINY\n", ""),
            (
                "block sums may be 16 times off the bound",
                "off_by = half_step + 2.0**-24 * magnitudes[i]",
                "off_by = 16 * half_step + 2.0**-24 * magnitudes[i]",
            ),
            (
                "a constant factor rounds by a whole unit",
                "self.workers / (2 * self.factor)",
                "self.workers / self.factor * 4",
            ),
        ],
    ),
    *faults(
        "sim/checks/rounds/kernels.py",
        VERIFY,
        [
            (
                "any number will do where an infinity was sent",
                "if not off_by <= allowed[i]:",
                "if not off_by <= allowed[i] and not np.isinf(total[i]):",
            ),
        ],
    ),
    *faults(
        "sim/checks/rounds/merges/words.py",
        VERIFY,
        [
            (
                "what several workers share counts once",
                "sum(tally.count * len(result.workers) for result, tally in found)",
                "sum(tally.count for result, tally in found)",
            ),
            (
                "float units of integers are not looked at",
                "            check_floats(place, floats, mixed)\n",
                "",
            ),
        ],
    ),
    *faults(
        "sim/checks/rounds/sums.py",
        VERIFY,
        [
            (
                "partial results are held to the sum of all workers",
                "sums_of_parts(totals.contributions, holders.bitmaps, holders.unit_words)",
                "sums_of_parts(totals.contributions)",
            ),
        ],
    ),
    *faults(
        "sim/run/step/lock_step.py",
        [
            "tests/sim/run/test_lock_step.py",
            "tests/sim/checks/test_checks.py::test_workers_that_read_different_words_send_different_messages",
        ],
        [
            (
                "a worker that ends its round sends what the others send",
                "if _kinds(sent) != _kinds(first.sent):",
                "if _kinds(sent) and _kinds(first.sent) and _kinds(sent) != _kinds(first.sent):",
            ),
            (
                "whatever differs is said to be damage",
                "differed = _differing_label(operations, both)",
                "differed = _differing_label(operations, both) or operations[0].sent[worker][0].label",
            ),
        ],
    ),
    *faults(
        "sim/run/codec_errors.py",
        ["tests/sim/run/test_codec_errors.py"],
        [
            (
                "a broken invariant is a codec's fault",
                "MemoryError | InvariantError | CodecError)",
                "MemoryError | CodecError)",
            ),
            ("memory that ends is a codec's fault", "MemoryError | InvariantError |", "InvariantError |"),
            (
                "netfold's own errors are a codec's",
                "        if not _is_reportable(error) or not (is_named or _passed_through(error, codec)):\n",
                "        if not _is_reportable(error):\n",
            ),
            ("any file is the codec's", "if frame.filename in files] or frames", "] or frames"),
        ],
    ),
    *faults(
        "sim/checks/rounds/merges/words.py",
        ["tests/sim/checks/test_words_sent.py"],
        [
            (
                "absent workers have words",
                "for rank, message in enumerate(sent) if not message.is_absent}",
                "for rank, message in enumerate(sent)}",
            ),
        ],
    ),
    *faults(
        "sim/checks/rounds/merges/signs.py",
        SIGNS,
        [
            (
                "absent workers have bits",
                "for rank, message in enumerate(sent) if not message.is_absent]",
                "for rank, message in enumerate(sent)]",
            ),
            (
                "what one worker alone received is not looked at",
                "        for other in whole[1:]:\n",
                "        for other in whole[2:]:\n",
            ),
            (
                "bits are fair if they are over the whole message",
                "    stretches = max(_fewest_stretches(workers), min(1 << (wanted - 1).bit_length(), STRETCHES_MAX))\n",
                "    stretches = min(wanted, 1)\n",
            ),
            (
                "a small bias is no bias",
                "            self._note_unfair(found, place, known.rounds, size)\n",
                "            self._note_unfair(None, place, known.rounds, size)\n",
            ),
            ("each message may raise a false alarm", "0.5 / (number * (number + 1))", "0.5 / number"),
        ],
    ),
    *faults(
        "sim/checks/rounds/merges/fairness.py",
        ["tests/sim/checks/test_fairness.py"],
        [
            (
                "nobody's bits survive too seldom",
                "over = np.abs(deviations) - limit[:, np.newaxis]",
                "over = deviations - limit[:, np.newaxis]",
            ),
            (
                "each division may raise a false alarm",
                "count = len(divisions) * stretches * statistics * 2",
                "count = stretches * statistics * 2",
            ),
            (
                "a variance that depends on the draws is known before",
                "(allowed_over_rounds if is_over_rounds else allowed)(",
                "allowed(",
            ),
            ("terms are normal", "third + np.sqrt(third * third + 2", "np.sqrt(2"),
        ],
    ),
    *faults(
        "sim/checks/rounds/merges/fairness.py",
        SIGNS,
        [
            (
                "where nearly all agree nothing is random",
                "held * (workers - held)",
                "held * (workers - held - 1)",
            ),
            (
                "a bit that only the merge has was sent",
                "is_unsent = deviation == workers or deviation == -workers",
                "is_unsent = deviation == -workers",
            ),
        ],
    ),
    *faults(
        "sim/checks/job.py",
        [CONTROLS],
        [
            (
                "sign bits are not judged",
                "(_floats_are_right(journal), _signs_are_right(journal))",
                "(_floats_are_right(journal),)",
            ),
        ],
    ),
    *faults(
        "sim/engine/switches/aggregate.py",
        [f"{CONTROLS}::test_sound_runs_pass"],
        [("switches merge signs without counts", "survival(held, packet.workers)", "survival(1, 1)")],
    ),
    *faults(
        "homomorphic/merge.py",
        [f"{CONTROLS}::test_sound_runs_pass"],
        [
            (
                "hosts merge signs without counts",
                "(accumulated.workers, arriving.workers, key), lane_bits",
                "(1, 1, key), lane_bits",
            ),
        ],
    ),
    *faults(
        "homomorphic/contract.py",
        ["tests/homomorphic/test_contract.py"],
        [
            (
                "a result may have any shape",
                "if not is_right or array.shape != gradient.shape:",
                "if not is_right:",
            ),
            (
                "only the first message is looked at",
                "    for message in sent:\n",
                "    for message in sent[:1]:\n",
            ),
            (
                "any merge is named",
                "if message.merge not in codec.merges:",
                "if not codec.merges:",
            ),
        ],
    ),
    *faults(
        "homomorphic/kernels/comparison.py",
        [*VERIFY, "tests/homomorphic/kernels/test_keyed.py"],
        [
            (
                "arrays that differ in one slice are the same",
                "return not any(count_differing",
                "return not all(count_differing",
            ),
            (
                "views of the same memory are the same, however long",
                'array.__array_interface__["data"][0], array.shape,',
                'array.__array_interface__["data"][0],',
            ),
        ],
    ),
    *faults(
        "sim/checks/rounds/examine.py",
        VERIFY,
        [
            (
                "only worker 0's sum is held to the bound",
                "if worker == 0 or held is not None or differs[worker - 1]",
                "if worker == 0 or held is not None",
            ),
        ],
    ),
    *faults(
        "sim/checks/rounds/merges/members.py",
        ["tests/sim/checks/test_members.py"],
        [
            (
                "claims are not held to the words sent",
                "claim := _wrong_claim(result.merged, has_words)",
                'claim := ""',
            ),
            (
                "parts that disagree are right",
                "    if merged.is_mixed:\n",
                "    if False:\n",
            ),
            ("absent workers may be holders", "if (right & ~has_words).any():", "if False:"),
            ("only the count is held to be right", "if np.array_equal(merged.present, right):", "if True:"),
            (
                "nobody need be named",
                "right.all() or right.size > MEMBERS_MAX",
                "True",
            ),
        ],
    ),
    *faults(
        "sim/checks/rounds/merges/words.py",
        ["tests/sim/checks/test_words_sent.py"],
        [
            (
                "words of nobody are not checked",
                "        _check_nothing(place, sent[0], results)",
                "        pass",
            ),
        ],
    ),
]
