"""Faults of gradients and of those who make them."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

W = "tests/sim/workload/"

MUTANTS: list[Mutant] = [
    *faults(
        "sim/workload/training/tasks.py",
        [W + "test_shards.py", W + "training/test_training.py", W + "training/test_recommender.py"],
        [
            (
                "all workers draw the digits of worker 0",
                'chosen = keyed(self._seed, "batch", step, worker).choice(self._shards[worker], self._batch)',
                'chosen = keyed(self._seed, "batch", step, 0).choice(self._shards[0], self._batch)',
            ),
            (
                "all workers draw from the shard of worker 0",
                "base = generator.choice(self._shards[worker], groups)",
                "base = generator.choice(self._shards[0], groups)",
            ),
            (
                "every step has the samples of the first",
                'generator = keyed(self._seed, "batch", step, worker)',
                'generator = keyed(self._seed, "batch", 0, worker)',
            ),
            (
                "rated items are drawn as unrated ones",
                "while (rated := self.is_rated(users[:, None], items)).any():",
                "while (rated := self.is_rated(users[:, None], items)).all():",
            ),
            (
                "a copy of an item is numbered by users",
                "self._ratings.items_count * self._item_blocks[blocks]",
                "self._ratings.users_count * self._item_blocks[blocks]",
            ),
        ],
    ),
    *faults(
        "sim/workload/draws.py",
        [
            W + "test_shards.py",
            W + "training/test_training.py",
            W + "test_synthetic.py",
            W + "training/test_recommender.py",
        ],
        [
            ("shards overlap", "[order[worker::workers] for worker", "[order[worker:] for worker"),
            (
                "draws for another purpose are the same",
                "zlib.crc32(purpose.encode())",
                "0 * zlib.crc32(purpose.encode())",
            ),
        ],
    ),
    *faults(
        "sim/workload/workload.py",
        [W + "test_buckets.py"],
        [
            (
                "a bucket is full when it has more than it may",
                "if size_bytes >= bucket_bytes:",
                "if size_bytes > bucket_bytes:",
            ),
            (
                "a bucket is ready when it begins",
                "(start + elements) / elements_total",
                "max(start, 1) / elements_total",
            ),
        ],
    ),
    *faults(
        "sim/workload/training/workload.py",
        [W + "training/test_training.py"],
        [
            (
                "weights move by the sum and not its mean",
                "self._learning_rate / self._workers)",
                "self._learning_rate)",
            ),
            ("the loss is that of worker 0", "sum(losses) / len(losses)", "losses[0]"),
            ("gradients add up over workers", "            self._model.zero_grad(set_to_none=True)\n", ""),
        ],
    ),
    *faults(
        "sim/run/variant.py",
        ["tests/sim/network/test_charged.py"],
        [
            (
                "all runs have an engine of seed 1",
                "engine = Engine(variant.network, plan.scenario.seed, variant.faults.rules)",
                "engine = Engine(variant.network, 1, variant.faults.rules)",
            ),
        ],
    ),
]
