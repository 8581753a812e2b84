"""Faults of collectives between hosts, and of the replay of what hosts merge."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

C = "tests/sim/collectives/"
BETWEEN = [C + "test_between_hosts.py"]
TIMES = [C + "test_host_times.py"]
PLANS = ["tests/sim/resolve/test_host_plans.py"]
MERGE = ["tests/homomorphic/test_host_merge.py"]
REPLAY = ["tests/sim/checks/test_hosts_merge.py"]

MUTANTS: list[Mutant] = [
    *faults(
        "homomorphic/host_merge.py",
        MERGE,
        [
            (
                "a replay takes in the wrong way round",
                "combine(merge, held[hop.into], held.pop(hop.taken), hop.key)",
                "combine(merge, held.pop(hop.taken), held[hop.into], hop.key)",
            ),
            ("a replay may leave workers out", "        if len(held) != 1:", "        if len(held) < 1:"),
            (
                "one part is joined",
                "return parts[0] if len(parts) == 1 else operand",
                "return operand",
            ),
        ],
    ),
    *faults(
        "homomorphic/merge.py",
        MERGE,
        [
            (
                "a host merge counts no workers of the accumulator",
                "Hop(accumulated.workers, arriving.workers, key)",
                "Hop(1, arriving.workers, key)",
            ),
        ],
    ),
    *faults(
        "sim/collectives/host_messages.py",
        BETWEEN,
        [
            (
                "operations are told apart by bucket alone",
                "key, is_first = (operation, part), (operation, part) not in self._open",
                "operation = operation._replace(step=0, operation=0, bucket=0)\n"
                "        key, is_first = (operation, part), (operation, part) not in self._open",
            ),
            (
                "orders are kept",
                "return self._orders.pop((step, bucket), {})",
                "return self._orders.get((step, bucket), {})",
            ),
        ],
    ),
    *faults(
        "sim/collectives/channels.py",
        TIMES,
        [
            (
                "a chunk waits for the one before",
                "connection.outstanding + packets > self._plan.window",
                "True",
            ),
            (
                "what is delivered stays outstanding",
                "self._connections[pair].outstanding -= packets",
                "self._connections[pair].outstanding -= 0",
            ),
        ],
    ),
    *faults(
        "sim/collectives/all_gather/run.py",
        BETWEEN,
        [
            ("a message returns to its owner", "if owner != following:", "if owner != worker:"),
            (
                "hops are merged with one key",
                "hop_key = mix_plain(key, workers)",
                "hop_key = mix_plain(key, 1)",
            ),
            ("absent workers are merged", "present, strict=True) if is_there]", "present, strict=True)]"),
        ],
    ),
    *faults(
        "sim/collectives/all_gather/run.py",
        TIMES,
        [("merging is free", "time_ps += merge_ps(device, message, words, part)", "time_ps += 0")],
    ),
    *faults(
        "sim/collectives/parameter_server/run.py",
        BETWEEN,
        [
            (
                "gathered messages change their server",
                "return operation.request.bucket % len(self._hosts)",
                "return operation.number % len(self._hosts)",
            ),
            (
                "ranges overlap",
                "words[size * server // count : size * (server + 1) // count]",
                "words[size * server // count : size * (server + 1) // count + 1]",
            ),
        ],
    ),
    *faults(
        "sim/collectives/parameter_server/run.py",
        TIMES,
        [
            (
                "all workers begin with server 0",
                "                server = (worker + turn) % count\n                if message.is_absent",
                "                server = turn\n                if message.is_absent",
            )
        ],
    ),
    *faults(
        "sim/collectives/parameter_server/serve.py",
        BETWEEN,
        [
            (
                "a server adds nothing of an absent worker to its count",
                "for index in range(chunks) if is_absent else [parcel.number]:",
                "for index in [] if is_absent else [parcel.number]:",
            ),
            (
                "a server overwrites what it received first",
                "is_own = held.workers > 1",
                "is_own = True",
            ),
            (
                "hops of a server are not recorded",
                "hops.append(HostHop(first, parcel.owner, key))",
                "hops.append(HostHop(parcel.owner, first, key))",
            ),
            (
                "a server passes nothing back to lower ranks",
                "if worker != parcel.owner:",
                "if worker > parcel.owner:",
            ),
        ],
    ),
    *faults(
        "sim/collectives/parameter_server/serve.py",
        TIMES,
        [("a server merges in no time", "        if time_ps == 0:\n", "        if time_ps >= 0:\n")],
    ),
    *faults(
        "sim/collectives/parameter_server/spec.py",
        PLANS,
        [
            ("one server more than workers", "if count > workers:", "if count > workers + 1:"),
            (
                "servers stand beside the first workers",
                "server * workers // count for",
                "server * 0 // count for",
            ),
        ],
    ),
    *faults(
        "sim/collectives/between_hosts.py",
        PLANS,
        [
            ("a note comes too early", "if 2 * packets <= self.window:", "if 2 * packets < self.window:"),
            ("a chunk of 3 bytes", "if value < WORD_BYTES:", "if value < WORD_BYTES - 1:"),
        ],
    ),
    *faults(
        "sim/collectives/registry.py",
        PLANS,
        [("any collective is recommended", "spec.merges.issuperset(merges)]", "spec.merges]")],
    ),
    *faults(
        "sim/plan/placement.py",
        PLANS,
        [
            (
                "two servers on one host",
                "self._taken.update(dict.fromkeys(chosen, (what.noun, location)))",
                "self._taken.update(dict.fromkeys(chosen if what is WORKERS else [], (what.noun, location)))",
            )
        ],
    ),
    *faults(
        "sim/checks/rounds/merges/hosts.py",
        REPLAY,
        [
            (
                "words that are missing pass",
                "        if found.size != right.size:\n",
                "        if found.size > right.size:\n",
            ),
            (
                "one wrong word passes",
                'tally.add(len(workers) * count, f"{what}, worker {workers[0]}, word',
                'count > 1 and tally.add(len(workers) * count, f"{what}, worker {workers[0]}, word',
            ),
            (
                "an order that is missing passes",
                'tally.add(1, f"{place}: the collective does not say how it was merged")',
                "pass",
            ),
            ("an order that leaves out workers passes", 'tally.add(1, f"{place}: {error}")', "pass"),
            (
                "a server's answers are not compared",
                '_compare(tally, f"the answer to {at}", answer, results)',
                "pass",
            ),
            (
                "messages that never came pass",
                "if len(result.merged.parts) != len(sent):",
                "if len(result.merged.parts) > len(sent):",
            ),
        ],
    ),
    *faults(
        "sim/checks/job.py",
        REPLAY,
        [
            (
                "hosts may merge as they like",
                "    if not wrong:\n        words = sum(one.words",
                "    if True:\n        words = sum(one.words",
            )
        ],
    ),
    *faults(
        "sim/checks/job.py",
        REPLAY,
        [
            (
                "gathered words are not checked",
                "is_integer = bool(merges & (ORDER_FREE | {Merge.GATHER}))",
                "is_integer = bool(merges & ORDER_FREE)",
            )
        ],
    ),
]
