"""Faults of gradients and of those who make them."""

from __future__ import annotations

from tests.mutants.mutant import Mutant, faults

W = "tests/sim/workload/"

MUTANTS: list[Mutant] = [
    *faults(
        "sim/workload/training/tasks/images.py",
        [
            W + "training/test_held_out.py",
            W + "training/test_training.py",
            W + "training/test_recommender.py",
        ],
        [
            (
                "all workers draw the digits of worker 0",
                'chosen = keyed(self._seed, "batch", step, worker).choice(self._shards[worker], self._batch)',
                'chosen = keyed(self._seed, "batch", step, 0).choice(self._shards[0], self._batch)',
            ),
        ],
    ),
    *faults(
        "sim/workload/training/tasks/recommender.py",
        [
            W + "training/test_held_out.py",
            W + "training/test_training.py",
            W + "training/test_recommender.py",
        ],
        [
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
            W + "training/test_held_out.py",
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
        "sim/workload/fusion/size.py",
        [W + "fusion/test_rules.py"],
        [
            (
                "a bucket is full when it has more than it may",
                "if size_bytes >= self.bytes:",
                "if size_bytes > self.bytes:",
            ),
        ],
    ),
    *faults(
        "sim/workload/fusion/partition.py",
        [W + "fusion/test_rules.py"],
        [
            ("a layer may be in two buckets", "if index in owners:", "if False:"),
            ("a layer may be in no bucket", "if index not in owners]", "if False]"),
        ],
    ),
    *faults(
        "sim/workload/buckets.py",
        [W + "test_buckets.py"],
        [
            (
                "a bucket is ready when its first layer is",
                "layers[max(own)].ready_share",
                "layers[min(own)].ready_share",
            ),
            ("buckets keep the order that was given", "sorted(partition, key=max)", "partition"),
        ],
    ),
    *faults(
        "sim/workload/layers.py",
        [W + "test_layers.py"],
        [
            ("every tensor is a layer", "tensor.layer or tensor.name", "tensor.name"),
            (
                "a layer is ready with its first tensor",
                "key=lambda item: item[1][-1]",
                "key=lambda item: item[1][0]",
            ),
        ],
    ),
    *faults(
        "sim/workload/training/modules.py",
        [W + "training/test_modules.py"],
        [
            ("a norm is a layer", "self._follows.get(module) or module", "module"),
            ("layers that share a parameter are two", "if head in same else head", "if False else head"),
        ],
    ),
    *faults(
        "sim/workload/training/weights.py",
        [W + "training/test_facts.py"],
        [
            ("weights are kept as the model changes them", "{name: weights.copy() for", "{name: weights for"),
            (
                "updates are scaled",
                "weights[part] -= step",
                "weights[part] -= np.float32(0.1) * step",
            ),
            ("the norm is that of the last slice", "math.fsum(squares)", "squares[-1]"),
            (
                "a restart keeps what workers kept",
                "self._now, self._kept, self.update_norm = None, {}, None",
                "self._now, self.update_norm = None, None",
            ),
        ],
    ),
    *faults(
        "sim/workload/training/workload.py",
        [W + "training/test_training.py"],
        [
            (
                "weights move by the sum and not its mean",
                "0 if is_update else self._workers,",
                "0 if is_update else 1,",
            ),
            ("the loss is that of worker 0", "sum(losses) / len(losses)", "losses[0]"),
        ],
    ),
    *faults(
        "sim/workload/training/loop/arena.py",
        [W + "training/test_training.py"],
        [("gradients add up over steps", "        self._written = set()\n", "")],
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
