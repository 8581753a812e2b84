"""Faults that need thought: rules that code could get wrong in a way that no operator makes.

Each rule that is easy to get subtly wrong should bring one: what is wrong, in words; and a piece of the sources,
which must be there once in the whole package, with «what it reads→what it reads instead» somewhere in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tests.mutants.fault import BY_HAND, Fault

CHANGES = (
    ("a link with acknowledgements alone is used", "sum(sent > «_UNUSED * max(each)→0» for sent in each)"),
    (
        "links elsewhere that are as busy do not count",
        "max(others_ps, default=0) < «ALIKE→2» * slowest.busy_ps",
    ),
    (
        "dimension order goes over the ports of servers",
        '«_require_one_port(graph, "dimension_order")→pass»\n',
    ),
    ("workers draw the same", "key_parts = round.seed, round.step, round.bucket, «self.rank→0»\n"),
    (
        "the layer is not rescaled",
        "float«(norms.sum()) / (group.row_elements * float(chances.sum()))→"
        "(norms.max()) / group.row_elements» * factor",
    ),
    ("the factor of the second sampling is missing", "«rows.size / count→1.0»\n"),
    (
        "the second sampling keeps the first rows",
        "rows[«np.sort(np.argpartition(draws, count - 1)[:count])→:count»]",
    ),
    ("D differences are summed", "deque(maxlen=staleness« - 1→»)"),
    ("the threshold is divided by M", "alpha / self._workers«**2→» *"),
    ("a running sum begins anew", "total[: sum_words.size] = «sum_words→0»\n"),
    ("what is sent is held back too", "owed[selection] -= «→0 * »values if"),
    (
        "the smaller scale decides",
        "«self.bits if self.scale > other.scale else other.bits→"
        "other.bits if self.scale > other.scale else self.bits»",
    ),
    ("compensation is against the worker's own signs", "keep_rest(«merged.words→words», "),
    ("an update is a sum", "Decoded(total, contribution«, is_update=True→»)"),
    ("rounded values are contributed whole", "_at(elements, «added.own→values»[positions], gradient)"),
    ("momentum does not grow", "        velocity «+= gradient→= gradient.copy()»\n"),
    ("every round has the same elements", "rng_streams.RANDOM_K, «round.step→0»,"),
    ("unbiased sums are not scaled", "np.float32(«gradient.size / count→1»)"),
    ("a residual is the gradient", "«owed→gradient» - decoded.contribution"),
    ("a residual is not sent", "gradient« + residual→»\n        # Two additions: of the residual"),
    (
        "a replay takes in the wrong way round",
        "combine(merge, «partials[hop.into], partials.pop(hop.taken)→partials.pop(hop.taken), partials[hop.into]», hop.key)",
    ),
    ("a turn of 0 loses a word", "(word >> («-turn & np.uint64(63)→np.uint64(63) - turn»))"),
    ("the last word's bits beyond the end are one too few", "2 ** («(count - 1)→count» % WORD_ELEMENTS + 1)"),
    (
        "values count without their order",
        "state = «splitmix64(state ^ np.uint64(value))→state ^ splitmix64(np.uint64(value))»",
    ),
    ("carries of three digits go one plane too low", "top = np.int32(high[i] + («above→digit» >> bits))"),
    ("NaN is announced", ">«= _INFINITY_BITS→ _INFINITY_BITS + (1 << 22)»:"),
    ("rows share their hashes", "mix_plain(key, «row→0») for row"),
    ("lanes share a sign", "(np.uint32(bits) >> np.uint32(«lane→0»)) &"),
    (
        "the median is one too low",
        "median = scratch[«scratch.shape[0] // 2→max(0, scratch.shape[0] // 2 - 1)»]",
    ),
    (
        "signs come from the second bit",
        "(«murmur3(block, j) >> np.uint32(31)→(murmur3(block, j) >> np.uint32(30)) & np.uint32(1)»)",
    ),
    ("a tile passes with something left", "    return bool(«left→(left & _DEGREE)» == 0)"),
    ("decoded bits are not compared", 'f"{total.size} {«bits} {→»sent.is_update}"'),
    (
        "lanes of 8 bits carry into the next",
        "return «lanes.view(np.int8) if message.lane_bits == 8 else None→lanes»",
    ),
    ("a codec does not know the tensors", "notes.append, «part.tensors→()»\n"),
    ("of equally busy links the first counts", "rank = np.where(is_candidate, «→0.0 * »total[links], -1.0)"),
    (
        "a worker is waited for that begins after the end",
        "for start in begun« if start[0] < at_ps or start[1]→»)",
    ),
    (
        "gradients are kept as DDP's buckets change them",
        'return detached.to("cpu", self._reduced[position].parameter.dtype«, copy=True→»)',
    ),
    ("flipped bits are not found", "if «hashlib.sha256(content).digest() !=→not» data[:_DIGEST_BYTES]:"),
    ("sums may be ten times off the bound", "if record.max_error_over_bound <= «1.0→10.0»:"),
    ("one lost round is none", "Finding(len(journal.rounds) «== expected→>= expected - 1», detail)"),
    (
        "links out of switches need not conserve bytes",
        "if link.bytes != accounted«→ and link.source.startswith('h')»:",
    ),
    (
        "what is in flight need not be accounted for",
        "link.lost_bytes + «link.in_flight_bytes→"
        "max(link.in_flight_bytes, link.bytes - link.delivered_bytes - link.lost_bytes)»\n",
    ),
    ("an infinite bound allows any error", "(bound[i] + 5e-324) if bound[i] < np.inf else «np.inf→0.0»"),
    ("each division may raise a false alarm", "count = «len(divisions) * →»stretches * statistics * 2"),
    (
        "wrong exponents are not counted",
        "        result.wrong.add(«count→0», result.wrong_word(place, word, (None, None)))\n\n\nclass",
    ),
    (
        "what saturates may be anything",
        "return np.asarray(«(above & below) | ((above | below) & is_between)→above | below»)",
    ),
    (
        "lanes are clipped where words are",
        "«int(np.iinfo(self.lane).max), int(np.iinfo(self.lane).min)→2**31 - 1, -(2**31)»",
    ),
    ("claims are not held to the words sent", 'claim := «_wrong_claim(result.merged, has_words)→""»'),
    (
        "bits are fair if they are over the whole message",
        "    stretches = «max(_fewest_stretches(workers), min(1 << (wanted - 1).bit_length(), STRETCHES_MAX))→"
        "min(wanted, 1)»\n",
    ),
    ("absent workers have words", "for rank, message in enumerate(sent)« if not message.is_absent→»}"),
    (
        "partial results are held to the sum of all workers",
        "sums_of_parts(totals.contributions«, holders.bitmaps, holders.unit_words→»)",
    ),
    (
        "a part is passed on before it has arrived",
        "waits = chunk + «(hop - 1) * chunks if hop→(hop - 2) * chunks if hop > 1» else NONE",
    ),
    ("absent workers are merged", "in zip(parts, present, strict=True)« if is_there→»]"),
    ("the last share that goes round a ring is copied, not added", "merges=step < workers - «1→2»,"),
    (
        "the group's own sum is taken for the total",
        "total[at] = «lane_sum.words[first : first + size]→total[at]»",
    ),
    (
        "operations are told apart by bucket alone",
        "«→"
        "operation = operation._replace(step=0, operation=0, bucket=0)\n        »key, is_first = (operation, part), (operation, part) not in self._open",
    ),
    ("every switch adds up", "sent = min(into[node], 1)« if node in able else into[node]→»"),
    ("short messages all take tree 0", "runs[(tree «-→+ 0 *» number) % trees]"),
    ("ranges overlap", "words[size * server // count : size * (server + 1) // count«→ + 1»]"),
    (
        "a server adds nothing of an absent worker to its count",
        "for index in «range(chunks)→[]» if is_absent else [chunk.number]:",
    ),
    (
        "hops name the workers the other way round",
        "HostHop(«arriving.first, local.first→local.first, arriving.first», key)",
    ),
    ("an absent worker counts", "present[worker] = «not message.is_absent→True»"),
    (
        "all engines have seed 1",
        "self.world = «table_setup.new_world(network, rules, seed)→table_setup.new_world(network, rules, 1)»",
    ),
    (
        "what answers a copy shares the fate of what answers the packet",
        "packet.copy = np.uint32(«packet.key) | np.uint32(1→0»)",
    ),
    ("a bad stretch never ends", "threshold = ALWAYS« - rule.to_good→»"),
    ("all links have one chain", "chain = world.chains[rule.chain, «index→0»]"),
    (
        "acknowledgements interrupt the packet on the wire",
        "start_ps = max(clock.now_ps, lane.free_at_ps«, link.begun_leaves_ps→»)",
    ),
    (
        "what is left of a packet is rounded down",
        "end_ps += «-(-link.wire_work // link.rate_bps)→link.wire_work // link.rate_bps»",
    ),
    (
        "a merge writes into the target's buffer whatever the order",
        "elif cells[own_cell].state == SCRATCH« and schedule.merge != SIGN→»:",
    ),
    (
        "a transfer is sent when the first is processed that it waits for",
        "if transfers[waiter].waits «=→>»= 0:",
    ),
    ("a merge ends before the packets of its instant", "clock.order« + LATE→»"),
    ("a reboot clears half of a job's slots", "first + «2 * →»int(job.window) * int(job.unit_packets)"),
    ("parts of a unit share a slot", "packet.slot * job.unit_packets« + packet.part→»"),
    ("SIGN draws the same at every point", "sender = «65536 * point.index + →»packet.child"),
    (
        "an inner switch keeps its partial instead of the result",
        "    «    copy_words(world.registers.values[row], words)\n    →»point.installed",
    ),
    ("a result lacks its exponent", "    result.exponent = «slot.exponent→0»\n"),
    (
        "a result's key forgets what caused it",
        "packet_key(world, copy, rng_stream, stream.worker * 65536« + cause→»)",
    ),
    ("partials take the worker's route", "    result.route = «lower.route→packet.route»"),
    ("the same gap is resent by every result", "if first >= 0« and stream.base >= stream.resent→»:"),
    (
        "a marked window shrinks to nothing",
        "least_bytes, most_bytes = «sender.sender.ack_every * frame→1», sender.window_max * frame",
    ),
    ("wrong results rank", "return «kind(verdict) not in GOOD→False», value is None, signed"),
    (
        "stalled is worse than wrong",
        '    if not kinds or «→"stalled" not in kinds and »not kinds <= {*GOOD, "stalled"}:',
    ),
    (
        "passes hide the buckets in flight",
        "«if not self._buckets[worker]→"
        "self._tell(worker, what, end_ps)\n        if False»:\n            self._report",
    ),
    (
        "a pass that was interrupted begins again",
        "began_ps, began_work_ps, reached_ps = now_ps, «done_ps→0», now_ps",
    ),
    (
        "a worker that ends its round sends what the others send",
        "if _kinds(sent) «→and _kinds(first.sent) and _kinds(sent) »!= _kinds(first.sent):",
    ),
    (
        "the first bucket goes first, whatever its rank",
        "key=lambda operation_id: «(waiting[operation_id][0], operation_id)→operation_id»",
    ),
    (
        "a turn is given as soon as it is asked for",
        "«EndOfInstant(self._environment, InstantPhase.TURN)→self._environment.timeout(0)»",
    ),
    ("a device takes what asked first", "heapq.heappush(self._waiting, («rank→0», "),
    ("operations share bytes equally", "self._open[worker].append((log, «max(1, payload_bytes)→1»))"),
    ("the repeats forget the scenario's seed", "dict.fromkeys([«seed→1»])"),
    ("the file of another point is taken", '«or content["digest"] != digest→»'),
    ("shards overlap", "[order[worker:«:workers→»] for worker"),
    ("differences are after less before", "«before[name], after→after, before[name]», out=after"),
    ("weights move by the sum and not its mean", "0 if is_update else «self._workers→1»,"),
    ("a narrow lane sticks only at the top", "«(old >= most or old <= -most)→old >= most»"),
    (
        "all carries of a word are one",
        "carried += int(«np.uint32((tops >> np.uint32(3)) * _ONES) >> np.uint32(28)→tops != 0»)",
    ),
    ("an acknowledgement frees any entry", "    if entries.rows[row].identity «== identity→!= FREE»:\n"),
    ("a late packet is answered as a lost one", "(ANSWER if is_seen else «LATE→ANSWER»)"),
    (
        "a dimension of two has two links",
        "sum(switches «if size > 2 else switches // 2 →»for size in dimensions)",
    ),
    (
        "ports that are left lead to the nearest groups on one side only, twice",
        "last = sorted([*half, *near, *«(self.groups - distance for distance in near)→near»])",
    ),
    ("ties on a ring always go up", "(«(2 * hops == size) & is_even→2 * hops == size»)"),
    ("targets that were reached before are reached again", "        new &= «unseen→~frontier»\n"),
)

_CHANGED = re.compile("«(.*)→(.*)»", re.DOTALL)


def faults_by_hand(texts: Mapping[str, str]) -> list[Fault]:
    """All of them, in order, given the sources by file; their lines are not known.

    Raises
    ------
    ValueError
        A piece is in no file, or in several.
    """
    faults = []
    for what_is_wrong, piece in CHANGES:
        before, after = (_CHANGED.sub(rf"\{number}", piece) for number in (1, 2))
        files = [file for file, text in texts.items() if before in text]
        if len(files) != 1:
            raise ValueError(f"{what_is_wrong}: {before!r} must be in one file, found in {files or 'none'}")
        faults.append(Fault(files[0], 0, what_is_wrong, BY_HAND, before, after))
    return faults
