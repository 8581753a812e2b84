"""The weights of a model that all workers share: updates, copies that workers keep, state for resuming."""

from __future__ import annotations

import math
import mmap
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from netfold.errors import DataError
from netfold.homomorphic.message import Gradient
from netfold.kernels.bits import same_bits
from netfold.sim.workload.fusion import Bucket
from netfold.sim.workload.optimizers import Optimizer
from netfold.sim.workload.workload import keyed

if TYPE_CHECKING:
    from netfold.sim.workload.optimizers import TensorState


# What an optimizer remembers, tensor by tensor, as arrays that can be kept.


class OptimizerMemory:
    """The steps of one optimizer, and its state of every tensor.

    Parameters
    ----------
    optimizer
        What makes the steps.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._states: dict[str, TensorState] = {}

    def step(self, name: str, weights: Gradient, gradient: Gradient, rate: float) -> None:
        """Move a tensor's weights in place; both are flat, and the gradient may be overwritten."""
        state = self._states.setdefault(name, {})
        # PyTorch adds in vectors, and the rest one by one with other roundings: in one piece, by one thread.
        self._optimizer.step(torch.from_numpy(weights), torch.from_numpy(gradient), rate, state)

    @property
    def has_state(self) -> bool:
        return self._optimizer.state_floats > 0

    def restart(self) -> None:
        self._states = {}

    def state(self) -> dict[str, dict[str, NDArray[Any]]]:
        """A copy, by the tensor's name and the name in PyTorch."""
        return {
            name: {key: value.numpy().copy() for key, value in tensors.items()}
            for name, tensors in self._states.items()
        }

    def restore(self, state: Mapping[str, Mapping[str, NDArray[Any]]]) -> None:
        self._states = {
            name: {key: torch.from_numpy(value.copy()) for key, value in arrays.items()}
            for name, arrays in state.items()
        }


# A worker's forward and backward pass: its loss, and each tensor's gradient as soon as it is ready.


Loss = Callable[[nn.Module, int, int], Tensor]
"""Loss of a model on the batch of a step of a worker."""
Sink = Callable[[str, Tensor], None]
"""Takes a tensor's name and its gradient."""


class ModelPasses:
    """Runs a model on the batches of workers, in one thread, so that the bits are the same everywhere.

    Parameters
    ----------
    model
        Afterwards it holds no gradients.
    names
        The parameters whose gradients are wanted.
    loss
        The loss of a model on a batch.
    seed
        Of what the model itself draws, such as dropout: keyed by step and worker. None: it draws nothing.
    tables
        Embeddings that the model looks up once in a pass, and uses for nothing else. Their gradients are
        handed over as rows, with the bits of whole tables.
    """

    def __init__(
        self,
        model: nn.Module,
        names: Iterable[str],
        loss: Loss,
        seed: int | None = None,
        tables: Sequence[nn.Embedding] = (),
    ) -> None:
        self._model, self._loss, self._seed, self._tables = model, loss, seed, tables
        self._sink: Sink | None = None
        for name in names:
            model.get_parameter(name).register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                lambda parameter, name=name: self._hand_over(name, parameter)
            )

    def run(self, step: int, worker: int, sink: Sink) -> float:
        """The loss of a worker at a step; every gradient goes to the sink when it is ready.

        A parameter on which the loss does not depend is not handed over. One whose gradient is made in
        several parts (checkpointed activations) may be handed over several times: the gradient is their sum.
        """
        self._sink = sink
        try:
            with one_thread(), self._drawing(step, worker), _as_rows(self._tables):
                loss = self._loss(self._model, step, worker)
                loss.backward()  # type: ignore[no-untyped-call]
        finally:
            self._sink = None
            self._model.zero_grad(set_to_none=True)
        return loss.item()

    def _hand_over(self, name: str, parameter: nn.Parameter) -> None:
        if self._sink is not None and parameter.grad is not None:
            gradient, parameter.grad = parameter.grad, None
            self._sink(name, gradient)

    def _drawing(self, step: int, worker: int) -> AbstractContextManager[None]:
        return nullcontext() if self._seed is None else drawing(self._seed, "forward", step, worker)


@contextmanager
def _as_rows(tables: Sequence[nn.Embedding]) -> Iterator[None]:
    """Let PyTorch make rows of the gradients of tables: a pass then touches no memory for the others."""
    were = [table.sparse for table in tables]
    for table in tables:
        table.sparse = True
    try:
        yield
    finally:
        for table, was in zip(tables, were, strict=True):
            table.sparse = was


@contextmanager
def drawing(seed: int, rng_stream: str, *key: int) -> Iterator[None]:
    """PyTorch's global CPU generator with a keyed seed; afterwards it is as before."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(keyed(seed, rng_stream, *key).integers(2**63)))
        yield


@contextmanager
def one_thread() -> Iterator[None]:
    """Let PyTorch use one thread, so that sums have the same bits on any number of cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """A model as in tests, in one thread and without gradients: no dropout, running statistics of norms."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with one_thread(), torch.no_grad():
            yield
    finally:
        for module, is_training in modes:
            module.training = is_training


_SLICE = 1 << 16  # elements

Copy = dict[str, Gradient]  # flat weights by name of the parameter


class Move(NamedTuple):
    """A total, and how it moves the weights."""

    names: Sequence[str]
    """Parameters of the total, one after another."""
    total: Gradient
    mean_of: int = 0
    """The optimizer takes a step with total / mean_of; 0: weights −= total."""
    rate: float = 0.0
    """The optimizer's rate in that step."""


class Weights:
    """The trained weights of a model. Updates change the model in place.

    Parameters
    ----------
    model
        Its trained parameters are float32; they are made contiguous.
    names
        The parameters that are trained.
    memory
        The optimizer, with its state.

    Raises
    ------
    DataError
        A trained parameter is not float32.
    """

    def __init__(self, model: nn.Module, names: Sequence[str], memory: OptimizerMemory) -> None:
        self._model, self._memory = model, memory
        for name in names:
            _prepare(name, model.get_parameter(name))
        self.shapes = {name: tuple(model.get_parameter(name).shape) for name in names}
        # Views that share memory with the model: what `move` subtracts from.
        self.flat = {name: model.get_parameter(name).detach().numpy().reshape(-1) for name in names}
        self._start: Copy | None = None  # the weights before the first update, once it is made
        self.has_moved = False  # the weights may differ from the start
        self._now: Copy | None = None  # a copy of the weights, once a worker keeps them
        self._kept: dict[int, Copy] = {}  # workers who keep the same share a copy
        self.update_norm: float | None = None  # L2 norm of the last `move`, in float64

    def move(self, moves: Sequence[Move], unused: Collection[str] = ()) -> None:
        """Take the optimizer's steps, or subtract from the weights in float32.

        What is `unused` stays as it is, and so does what the optimizer remembers of it: PyTorch's optimizers
        pass over a parameter without a gradient.
        """
        self._remember_start()
        self._now = None
        squares: list[float] = []
        for move in moves:
            start = 0
            for name in move.names:
                weights = self.flat[name]
                total = move.total[start : start + weights.size]
                start += weights.size
                if name not in unused:
                    squares += self._move(name, total, move)
        self.update_norm = math.sqrt(math.fsum(squares))  # exact, whatever the order of parameters

    def _move(self, name: str, total: Gradient, move: Move) -> list[float]:
        """Move a parameter; returns sums of squares of what was subtracted.

        In slices, so that temporaries stay in the cache, unless the optimizer remembers something.
        """
        weights, squares = self.flat[name], []
        size = max(1, weights.size) if move.mean_of and self._memory.has_state else _SLICE
        for first in range(0, weights.size, size):
            part = slice(first, first + size)
            step = total[part]
            if move.mean_of:
                old_weights = weights[part].copy()
                with one_thread():
                    self._memory.step(name, weights[part], step / np.float32(move.mean_of), move.rate)
                step = np.subtract(old_weights, weights[part], dtype=np.float64)
            else:
                weights[part] -= step
            squares.append(float(np.square(step, dtype=np.float64).sum()))
        return squares

    @contextmanager
    def replaced_by(self, values: Mapping[str, Gradient]) -> Iterator[None]:
        """Let the model run with other weights, which it shares memory with; its own stay as they are."""
        originals = {name: self._model.get_parameter(name).data for name in self.shapes}
        for name, weights in values.items():
            self._model.get_parameter(name).data = self.tensor_of(name, weights)
        try:
            yield
        finally:
            for name, tensor in originals.items():
                self._model.get_parameter(name).data = tensor

    def tensor_of(self, name: str, weights: Gradient) -> torch.Tensor:
        # In the same memory.
        return torch.from_numpy(weights).view(self.shapes[name])

    def keep(self, worker: int) -> None:
        if self._now is None:
            self._now = self._copy()
        self._kept[worker] = self._now

    def kept(self, worker: int) -> Copy:
        if worker not in self._kept:
            raise RuntimeError(f"worker {worker} has kept no weights: call keep_weights before")
        return self._kept[worker]

    def require_start(self, fresh: nn.Module) -> None:
        """Require of a model that is built again the weights that this one had before its first update."""
        built = {name: fresh.get_parameter(name).detach().numpy().reshape(-1) for name in self.shapes}
        if not all(same_bits(weights, built[name]) for name, weights in (self._start or self.flat).items()):
            raise DataError(
                "the model has other weights each time it is built, so no two variants begin alike",
                "draw them from PyTorch's global generator, which is seeded, or from one with a fixed seed",
            )

    def restart(self) -> None:
        """Back to the weights before the first update; workers keep none."""
        if self.has_moved and self._start is not None:
            for name, weights in self.flat.items():
                np.copyto(weights, self._start[name])
        self.has_moved = False
        self.forget()

    def forget(self) -> None:
        """Forget what workers keep and what the optimizer remembers."""
        self._now, self._kept, self.update_norm = None, {}, None
        self._memory.restart()

    def state(self) -> dict[str, Any]:
        """A copy of the weights, those that workers keep, the update's norm, and the optimizer's state."""
        return {
            "weights": self._copy(),
            "kept": dict(self._kept),
            "update_norm": self.update_norm,
            "optimizer": self._memory.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._remember_start()
        for name, weights in self.flat.items():
            np.copyto(weights, state["weights"][name])
        self._now, self._kept, self.update_norm = None, dict(state["kept"]), state["update_norm"]
        self._memory.restore(state["optimizer"])

    def _remember_start(self) -> None:
        if self._start is None:
            self._start = self._copy()
        self.has_moved = True

    def _copy(self) -> Copy:
        return {name: weights.copy() for name, weights in self.flat.items()}


def _prepare(name: str, parameter: nn.Parameter) -> None:
    """Let a parameter's values follow one another in memory."""
    if parameter.dtype != torch.float32:
        raise DataError(
            f"the parameter {name} has values of {parameter.dtype}, gradients are exchanged as float32",
            "train the model in float32: model.float()",
        )
    if not parameter.is_contiguous():
        parameter.data = parameter.data.contiguous()


# The gradient of a table in which only some rows are non-zero, as PyTorch's sparse embeddings give it.


class TableRows(NamedTuple):
    """Rows of a table; all others are zero."""

    places: NDArray[np.int64]  # (n,) which rows, ascending, each once
    values: NDArray[np.float32]  # (n, elements of a row)

    @property
    def nbytes(self) -> int:
        return self.places.nbytes + self.values.nbytes

    def write(self, table: Gradient) -> None:
        """Write them into a flat table `(rows · elements of a row,)` whose other elements stay."""
        if self.places.size:
            table.reshape(-1, self.values.shape[1])[self.places] = self.values

    def plus(self, other: TableRows) -> TableRows:
        """The sum, in float32."""
        places = np.union1d(self.places, other.places)
        values = np.zeros((places.size, self.values.shape[1]), np.float32)
        for rows in (self, other):
            values[np.searchsorted(places, rows.places)] += rows.values
        return TableRows(places, values)


def rows_of(gradient: Tensor) -> TableRows:
    """The rows of a gradient, dense or with one sparse dimension; a row that occurs twice is summed.

    Rows of a dense gradient without a non-zero element are left out.
    """
    row_elements = math.prod(gradient.shape[1:])
    if not gradient.is_sparse:
        table = gradient.detach().reshape(-1, row_elements).numpy()
        places = np.flatnonzero(table.any(axis=1))
        return TableRows(places, table[places])
    # One after the other, as whole tables are summed: `coalesce` takes them in no certain order.
    places, row = torch.unique(gradient._indices()[0], return_inverse=True)
    values = torch.zeros(places.numel(), row_elements)
    values.index_add_(0, row, gradient.detach()._values().reshape(-1, row_elements))
    return TableRows(places.numpy(), values.numpy())


def no_rows(row_elements: int) -> TableRows:
    # A table of zeros.
    return TableRows(np.empty(0, np.int64), np.empty((0, row_elements), np.float32))


# Where the gradients of all workers are: one mapping of memory, used at every step, written by tensors.
#
# PyTorch hands over each tensor's gradient when it is ready, and frees it; so beside the arena there is no
# second copy of a gradient. Gradients that PyTorch gives as rows stay rows, and take memory for these
# alone. A bucket with such a tensor is made dense when somebody asks for it, and for as long as somebody
# holds it; pages on which there is no row then take no memory either, as long as they are only read.


_ALIGNED = 16  # elements: a bucket begins on a cache line


class Arena:
    """The gradients of `workers` workers, by bucket.

    Parameters
    ----------
    buckets
        What the gradient is divided into.
    workers
        For how many workers there is room.
    sparse
        The names of the tensors whose gradients are kept as rows.
    """

    def __init__(self, buckets: Sequence[Bucket], workers: int, sparse: Collection[str] = ()) -> None:
        self._buckets, self._sparse = buckets, frozenset(sparse)
        places: dict[str, slice] = {}
        spans: list[slice | None] = []  # None: the bucket has a tensor of rows
        stop = 0
        for bucket in buckets:
            start = stop = -(-stop // _ALIGNED) * _ALIGNED
            for tensor in bucket.tensors:
                if tensor.name not in self._sparse:
                    places[tensor.name] = slice(stop, stop + tensor.elements)
                    stop += tensor.elements
            has_rows = any(tensor.name in self._sparse for tensor in bucket.tensors)
            spans.append(None if has_rows else slice(start, stop))
        row = -(-stop // _ALIGNED) * _ALIGNED
        values = mapped(workers * row).reshape(workers, row)
        shapes = {tensor.name: tensor.shape for bucket in buckets for tensor in bucket.tensors}
        self._row_elements = {name: int(np.prod(shapes[name][1:], dtype=np.int64)) for name in self._sparse}
        self._values = [{name: vector[extent] for name, extent in places.items()} for vector in values]
        self._tensors = [
            {name: torch.from_numpy(array).view(shapes[name]) for name, array in arrays.items()}
            for arrays in self._values
        ]
        self._rows: list[dict[str, TableRows]] = [{} for _ in range(workers)]
        nowhere = np.empty(0, np.int64)
        # Of each worker's tensors, the rows that may not be zero, where that is known.
        self._touched = [dict.fromkeys(places, nowhere) for _ in range(workers)]
        self._written: set[str] = set()
        self._dense = [[None if span is None else vector[span] for span in spans] for vector in values]

    @property
    def gradients(self) -> list[Sequence[Gradient]]:
        """The gradients `[worker][bucket]`, each 1-D, contiguous and float32; not to be written to.

        Where a bucket has rows it is made when it is asked for, and again once nobody holds it any longer.
        """
        gradients: list[Sequence[Gradient]] = []
        for worker, buckets in enumerate(self._dense):
            whole = [bucket for bucket in buckets if bucket is not None]
            gradients.append(whole if len(whole) == len(buckets) else _Buckets(self, worker))
        return gradients

    def begin(self, worker: int) -> None:
        """A worker's next gradient begins: what it had is overwritten."""
        self._written = set()
        self._rows[worker] = {}

    def put(self, worker: int, name: str, gradient: Tensor) -> None:
        """Write, or add to what was written since `begin`, the gradient of a tensor."""
        is_first = name not in self._written
        self._written.add(name)
        if name in self._sparse:
            rows = rows_of(gradient)
            self._rows[worker][name] = rows if is_first else self._rows[worker][name].plus(rows)
            return
        tensor, touched = self._tensors[worker][name], self._touched[worker].pop(name, None)
        if gradient.is_sparse and is_first:
            rows, table = rows_of(gradient), self._values[worker][name]
            table.reshape(-1, rows.values.shape[1])[... if touched is None else touched] = 0
            rows.write(table)
            self._touched[worker][name] = rows.places
            return
        dense = gradient.detach().to_dense() if gradient.is_sparse else gradient.detach()
        if is_first:
            tensor.copy_(dense)
        else:
            tensor.add_(dense)

    def end(self, worker: int) -> frozenset[str]:
        """The gradient is complete; returns what was written: the loss does not depend on other tensors."""
        for name, array in self._values[worker].items():
            if name not in self._written and self._touched[worker].get(name, array).size:
                array[:] = 0
                self._touched[worker][name] = np.empty(0, np.int64)
        for name in self._sparse - self._written:
            self._rows[worker][name] = no_rows(self._row_elements[name])
        return frozenset(self._written)

    def rows(self, worker: int) -> dict[str, TableRows]:
        # By name, of tensors that are kept as rows.
        return self._rows[worker]

    def bucket(self, worker: int, index: int) -> Gradient:
        """A bucket; one with rows is made dense in memory of its own."""
        dense = self._dense[worker][index]
        if dense is not None:
            return dense
        bucket = self._buckets[index]
        bucket_array = mapped(bucket.elements)
        for tensor in bucket.tensors:
            if tensor.name in self._sparse:
                self._rows[worker][tensor.name].write(bucket_array[tensor.place])
            else:
                bucket_array[tensor.place] = self._values[worker][tensor.name]
        return bucket_array


class _Buckets(Sequence[Gradient]):
    """A worker's buckets, of which some have rows: these are made when they are asked for."""

    def __init__(self, arena: Arena, worker: int) -> None:
        self._arena, self._worker = arena, worker
        self._made: dict[int, weakref.ref[NDArray[np.float32]]] = {}  # buckets that somebody may still hold

    def __len__(self) -> int:
        return len(self._arena._buckets)

    @overload
    def __getitem__(self, index: int) -> Gradient: ...

    @overload
    def __getitem__(self, index: slice) -> list[Gradient]: ...

    def __getitem__(self, index: int | slice) -> Gradient | list[Gradient]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        bucket_index = range(len(self))[index]
        reference = self._made.get(bucket_index)
        bucket = reference() if reference is not None else None
        if bucket is None:
            bucket = self._arena.bucket(self._worker, bucket_index)
            self._made[bucket_index] = weakref.ref(bucket)
        return bucket


def mapped(elements: int) -> Gradient:
    """Zeros `(elements,)`, float32, in an anonymous mapping of their own: pages take memory once written."""
    memory = mmap.mmap(-1, max(1, 4 * elements), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(memory, np.float32, elements)


# Parameters that the loss of a pass does not depend on: experts, branches that are dropped, spare heads.
#
# Their gradients are zero, as with `find_unused_parameters` of PyTorch's DistributedDataParallel, and what no
# worker uses in a step is left alone by the optimizer.


class Usage:
    """Counts of each parameter how many gradients of workers leave it out.

    Parameters
    ----------
    names
        Of all parameters that are trained.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._step: list[frozenset[str]] = []  # what each worker used in the last step
        self.restart()

    def begin(self) -> None:
        self._step = []

    def add(self, used: frozenset[str]) -> None:
        self._step.append(used)

    def close(self) -> frozenset[str]:
        """Count the step; returns what no worker used."""
        self._unused += [sum(name not in used for used in self._step) for name in self._names]
        return frozenset(self._names).difference(*self._step)

    def restart(self) -> None:
        # The last step stays as it is.
        self._unused = np.zeros(len(self._names), np.int64)

    def notes(self, gradients: int) -> tuple[str, ...]:
        """What a reader of the results should know, after so many gradients of workers."""
        counts = list(zip(self._names, self._unused.tolist(), strict=True))
        never = [name for name, count in counts if 0 < count == gradients]
        partly = [name for name, count in counts if 0 < count < gradients]
        notes = []
        if partly:
            notes.append(
                f"{_some(partly)} not used in every pass: the gradient is zero there, and a step in which no "
                "worker uses a tensor leaves it as it is"
            )
        if never:
            notes.append(f"{_some(never)} used in no pass: the gradient is zero, and is sent all the same")
        return tuple(notes)

    def state(self) -> NDArray[np.int64]:
        return self._unused.copy()

    def restore(self, state: NDArray[np.int64]) -> None:
        self._unused = state.copy()


def _some(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"the tensor {names[0]!r} is"
    return f"{len(names)} tensors, such as {names[0]!r}, are"
