"""Training a user's model: the file is run, its parts are checked, its backward passes are watched."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import linecache
import math
import random
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol
from weakref import WeakSet

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset, default_collate

from netfold.errors import DataError, NetfoldError, names_hint
from netfold.homomorphic.message import Tensor as Described
from netfold.sim.workload.model import Parts, TaskSettings
from netfold.sim.workload.model_probe import tensors_of
from netfold.sim.workload.model_task import Batches, Draw, ModelTask
from netfold.sim.workload.weights import drawing, one_thread
from netfold.sim.workload.workload import Score, keyed


def user_error(error: BaseException, path: str, given: str, doing: str) -> DataError:
    # `given` is the file as the user calls it; `doing` says what was being done, such as "step 3, worker 0".
    linecache.checkcache(path)  # the file may have been edited since this process read it
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    what = " ".join(what.split())
    prefix = f"{doing}: " if doing else ""
    if isinstance(error, SyntaxError) and error.filename == path:
        line = (error.text or "").strip()
        return DataError(f"{prefix}{given}, line {error.lineno}: {what}", _line(line))
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_same(frame.filename, path)]
    if not frames:
        return DataError(f"{prefix}{given}: {what}")
    last = frames[-1]
    text = last.line or linecache.getline(path, last.lineno or 0).strip()
    return DataError(f"{prefix}{given}, line {last.lineno}, in {last.name}: {what}", _line(text))


def _line(text: str) -> str:
    return f"the line is: {text}" if text else ""


def _is_same(filename: str, path: str) -> bool:
    return filename == path or Path(filename) == Path(path)


# What the user's function returns: a module, data, a loss, and a score if it likes.


_RETURN = "return module, data, loss"
_NAMES = ("module", "data", "loss", "score")
_DATA = "data are a dataset with a length whose items are (input, target), or a pair of tensors"


def read_parts(returned: Any, make: str) -> Parts:
    """Check what the function `make` returned.

    Raises
    ------
    DataError
        Something is missing, or of a kind that cannot be used.
    """
    module, data, loss, score = _values(returned, make)
    if not isinstance(module, nn.Module):
        raise DataError(f"{make}: the module must be a torch.nn.Module, found {kind_of(module)}", _RETURN)
    if loss is None:
        raise DataError(f"{make} returned no loss", f"{_RETURN}, such as torch.nn.CrossEntropyLoss()")
    if not callable(loss):
        raise DataError(
            f"{make}: the loss must be a function of outputs and targets, found {kind_of(loss)}",
            f"{_RETURN}, such as torch.nn.CrossEntropyLoss()",
        )
    if score is not None and not callable(score):
        raise DataError(
            f"{make}: the score must be a function of the module, found {kind_of(score)}",
            "it returns a number that is larger for better models",
        )
    parts = Parts(module, _dataset(data, make), loss, score)
    _require_trainable(parts, make)
    return parts


def _values(returned: Any, make: str) -> tuple[Any, Any, Any, Any]:
    """Module, data, loss and score, those that are missing as None."""
    if returned is None:
        raise DataError(f"{make} returned nothing", _RETURN)
    if isinstance(returned, Mapping):
        if unknown := [str(key) for key in returned if key not in _NAMES]:
            raise DataError(f"{make} returned the unknown part {unknown[0]!r}", f"use {', '.join(_NAMES)}")
        values = [returned.get(name) for name in _NAMES]
    elif isinstance(returned, tuple | list):
        if not 1 <= len(returned) <= len(_NAMES):
            raise DataError(f"{make} returned {len(returned)} values", f"{_RETURN}, or with a score")
        values = [*returned, *[None] * (len(_NAMES) - len(returned))]
    else:
        raise DataError(f"{make} returned {kind_of(returned)}, without data and loss", _RETURN)
    if values[1] is None:
        raise DataError(f"{make} returned no data", _DATA)
    module, data, loss, score = values
    return module, data, loss, score


def _dataset(data: Any, make: str) -> Any:
    """The data as items by number."""
    if isinstance(data, DataLoader):
        raise DataError(f"{make}: the data are a DataLoader", "give its dataset: netfold makes the batches")
    if isinstance(data, tuple | list) and data and all(isinstance(tensor, Tensor) for tensor in data):
        if len({len(tensor) for tensor in data}) > 1:
            counts = ", ".join(str(len(tensor)) for tensor in data)
            raise DataError(f"{make}: the tensors of the data have different lengths: {counts}", _DATA)
        data = TensorDataset(*data)
    if not isinstance(data, Batches) and not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise DataError(f"{make}: the data are {kind_of(data)}", _DATA)
    if len(data) == 0:
        raise DataError(f"{make}: the data are empty", _DATA)
    return data


def _require_trainable(parts: Parts, make: str) -> None:
    """Require parameters that netfold can train: float32, on the CPU."""
    _require_plain(parts.module, make)
    if not parts.trained:
        raise DataError(f"{make}: the module has no parameters to train", "give it layers with weights")
    for name, parameter in parts.trained.items():
        if parameter.device.type != "cpu":
            raise DataError(
                f"{make}: the parameter {name!r} is on {parameter.device}", "leave the module on the CPU"
            )
        if parameter.dtype != torch.float32:
            dtype = str(parameter.dtype).removeprefix("torch.")
            raise DataError(
                f"{make}: the parameter {name!r} is {dtype}, must be float32",
                "call module.float() before it is returned",
            )


def _require_plain(module: nn.Module, make: str) -> None:
    """Refuse modules that cannot be watched, those that would train otherwise, and lazy ones."""
    if isinstance(module, torch.jit.ScriptModule) or hasattr(module, "_orig_mod"):
        what = "torch.jit" if isinstance(module, torch.jit.ScriptModule) else "torch.compile"
        raise DataError(
            f"{make}: the module was compiled with {what}", "return the module as it was before that"
        )
    for name, part in module.named_modules():
        if isinstance(part, nn.SyncBatchNorm):
            raise DataError(
                f"{make}: {name!r} is a SyncBatchNorm, which normalises by the batches of all workers; in "
                "netfold each worker's batch is normalised by itself",
                "leave out convert_sync_batchnorm, or use GroupNorm, which does not depend on the batch",
            )
    for name, parameter in module.named_parameters():
        if nn.parameter.is_lazy(parameter):
            raise DataError(
                f"{make}: the parameter {name!r} of a lazy layer has no shape yet",
                "pass a batch through the module before it is returned, or use a layer of a known size",
            )


def require_same(first: Parts, second: Parts, batches: Sequence[Any], make: str) -> None:
    """Require that two calls of the function returned the same weights and data.

    Raises
    ------
    DataError
        They differ, in what.
    """
    hint = "netfold seeds torch, numpy and random: draw from these, and use no clock and no set of objects"
    state, other = first.module.state_dict(), second.module.state_dict()
    if shapes := [name for name in state if name not in other or state[name].shape != other[name].shape]:
        raise DataError(f"{make} is not deterministic: two calls differ in {shapes[0]!r}", hint)
    for name, value in state.items():
        if not torch.equal(torch.nan_to_num(value), torch.nan_to_num(other[name])):
            raise DataError(f"{make} is not deterministic: two calls differ in {name!r}", hint)
    if len(first.data) != len(second.data):
        counts = f"{len(first.data)} and {len(second.data)}"
        raise DataError(f"{make} is not deterministic: two calls have {counts} samples", hint)
    if not _is_equal(*batches):
        raise DataError(f"{make} is not deterministic: two calls have different samples", hint)


def _is_equal(first: Any, other: Any) -> bool:
    """Whether two batches hold the same tensors."""
    if isinstance(first, Tensor):
        return isinstance(other, Tensor) and torch.equal(torch.nan_to_num(first), torch.nan_to_num(other))
    if isinstance(first, Mapping):
        return all(_is_equal(value, other[key]) for key, value in first.items())
    if isinstance(first, tuple | list):
        return all(_is_equal(*pair) for pair in zip(first, other, strict=True))
    return bool(first == other)


def kind_of(value: Any) -> str:
    """A value's type in words."""
    name = type(value).__name__
    return "nothing" if value is None else f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


# Reads the user's file, and calls the function in it.


class UserFile(Protocol):
    """A user's file that has been found, and the function in it."""

    @property
    def make(self) -> str:
        # File and function, as the scenario gives them.
        ...

    @property
    def path(self) -> str:
        # Of the file, absolute.
        ...

    @property
    def sha256(self) -> str: ...

    @property
    def file(self) -> str:
        # The path as the user gives it.
        ...

    @property
    def function(self) -> str: ...


def function_of(model: UserFile) -> Callable[[], Any]:
    """The user's function; the file is run, and may import files beside it.

    Raises
    ------
    DataError
        The file cannot be run, or has no such function without arguments.
    """
    module = _run(model)
    function = getattr(module, model.function, None)
    if function is None:
        names = [
            name for name, member in vars(module).items() if inspect.isfunction(member) and name[0] != "_"
        ]
        hint = names_hint(model.function, names, "functions") if names else "it has no functions at all"
        raise DataError(f"{model.file} has no function {model.function!r}", hint)
    if not callable(function):
        raise DataError(
            f"{model.make} is no function but {type(function).__name__}", "give the name of a function"
        )
    needed = [
        name
        for name, argument in inspect.signature(function).parameters.items()
        if argument.default is argument.empty
        and argument.kind not in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD)
    ]
    if needed:
        raise DataError(
            f"{model.make} needs arguments: {', '.join(needed)}",
            "it is called without any: give them defaults",
        )
    return function  # type: ignore[no-any-return]


def call(model: UserFile, function: Callable[[], Any], seed: int) -> Any:
    # Generators of PyTorch, NumPy and Python are seeded for the call.
    with seeded(seed, "weights"), beside(model):
        try:
            return function()
        except (Exception, SystemExit) as error:  # whatever the user's code does
            raise user_error(error, model.path, model.file, "") from error


@contextmanager
def seeded(seed: int, rng_stream: str, *key: int) -> Iterator[None]:
    """Seed the global generators of PyTorch, NumPy and Python by a key, and restore them afterwards.

    What the user's code prints meanwhile goes to the error stream: the output may be one JSON object.
    """
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002  the user's code may use them
    seeds = keyed(seed, rng_stream, *key).integers(2**32, size=2).tolist()
    with drawing(seed, rng_stream, *key), redirect_stdout(sys.stderr):
        random.seed(seeds[0])
        np.random.seed(seeds[1])  # noqa: NPY002
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002


@contextmanager
def beside(model: UserFile) -> Iterator[None]:
    """Let the user's code import files that are beside its own."""
    folder = str(Path(model.path).parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _run(model: UserFile) -> ModuleType:
    """The user's file as a module; a file that has not changed runs once."""
    name = "netfold_user_" + hashlib.sha256(f"{model.sha256} {model.path}".encode()).hexdigest()[:16]
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, model.path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look for it there
    try:
        with beside(model), seeded(0, "import"):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever the user's code does
        del sys.modules[name]
        raise user_error(error, model.path, model.file, "") from error
    return module


# Looks at every pass of a user's module: who is running, and what its gradients are.


class Watch:
    """What a task knows of the pass that is under way.

    Copies of a watched module are watched too: the module's class is replaced by one that tells this object
    which of them runs.
    """

    def __init__(self, path: str, given: str, seed: int) -> None:
        self._path, self._given, self._seed = path, given, seed
        self._running: nn.Module | None = None
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._pass: tuple[int, int] | None = None  # step and worker of the pass that is under way
        self._known: WeakSet[nn.Module] = WeakSet()  # modules whose gradients are looked at
        # Gradients of this pass by name, and what is wrong with them.
        self._ready: dict[str, DataError | None] = {}

    def begin(self, step: int, worker: int) -> None:
        self._pass = step, worker

    @property
    def where(self) -> str:
        return "step {}, worker {}".format(*self._pass) if self._pass else ""

    def guard(self, module: nn.Module, has_names: bool) -> None:
        """Watch a module: its exceptions name the user's line. With names its input is one mapping."""
        original = type(module)
        watch = self

        def forward(self: nn.Module, *inputs: Any) -> Any:
            watch._running = self
            watch._attend(self)
            with watch.drawing(), watch.blaming():
                if has_names:
                    return original.forward(self, **inputs[0])
                return original.forward(self, *inputs)

        self._shapes = _shapes(module)
        attributes = {"forward": forward, "__module__": original.__module__, "__doc__": original.__doc__}
        module.__class__ = type(original.__name__, (original,), attributes)

    def _attend(self, module: nn.Module) -> None:
        """Look at each gradient of a module when it is ready: who runs the pass may take it away then."""
        if module in self._known:
            return
        self._known.add(module)
        for name, parameter in module.named_parameters():
            if parameter.requires_grad:
                parameter.register_hook(partial(self._look, name))  # type: ignore[no-untyped-call]

    def _look(self, name: str, gradient: Tensor) -> None:
        """Note whether a gradient is finite; of a table that gives rows alone, these."""
        if gradient.is_sparse:
            gradient = gradient.detach()._values()
        self._ready[name] = None if gradient.isfinite().all() else self._not_finite(name, gradient)

    def drawing(self) -> AbstractContextManager[None]:
        # The global generators are restored afterwards.
        return seeded(self._seed, "dropout", *(self._pass or ()))

    @contextmanager
    def blaming(self) -> Iterator[None]:
        """Tell exceptions of the user's code in words."""
        try:
            yield
        except NetfoldError:
            raise
        except (Exception, SystemExit) as error:  # whatever the user's code does
            raise user_error(error, self._path, self._given, self.where) from error

    def loss(self, value: Any) -> Tensor:
        """A loss that can be followed backward, whose gradients are looked at when the pass ends.

        Raises
        ------
        DataError
            It is no scalar tensor, or depends on no parameter.
        """
        if not isinstance(value, Tensor):
            raise self._error(
                f"the loss must be a tensor, found {type(value).__name__}", "return a scalar tensor"
            )
        if value.numel() != 1:
            shape = " x ".join(map(str, value.shape))
            raise self._error(
                f"the loss must be a scalar, found a tensor of {shape}", "take its mean, such as loss.mean()"
            )
        if torch.is_grad_enabled():
            if not value.requires_grad:
                raise self._error(
                    "the loss does not depend on the parameters",
                    "compute it from the module's outputs, without detach(), item() or no_grad()",
                )
            self._ready.clear()
            value.register_hook(self._at_end)  # type: ignore[no-untyped-call]
        return value.reshape(())

    def _at_end(self, _: Tensor) -> None:
        """Look at the gradients when the backward pass that has begun is done."""
        queue: Callable[[Callable[[], None]], None] = torch.autograd.Variable._execution_engine.queue_callback
        queue(self._examine)

    def _examine(self) -> None:
        """Require the known shapes, and gradients that are finite; a parameter that was not used has none."""
        module = self._running
        if module is None:
            raise self._error("the loss was computed without the module", "call the loss on its outputs")
        if (shapes := _shapes(module)) != self._shapes:
            raise self._change_error(shapes)
        for name in self._shapes:
            if (error := self._ready.get(name)) is not None:
                raise error

    def _change_error(self, changed_shapes: dict[str, tuple[int, ...]]) -> DataError:
        for name in {**self._shapes, **changed_shapes}:
            before, now = (
                " x ".join(map(str, shapes[name])) or "a scalar" if name in shapes else "missing"
                for shapes in (self._shapes, changed_shapes)
            )
            if before != now:
                break
        return self._error(
            f"the shape of the parameter {name!r} has changed: it was {before}, it is {now}",
            "create all parameters when the module is made, and do not replace them",
        )

    def _not_finite(self, name: str, gradient: Tensor) -> DataError:
        wrong = (~gradient.isfinite()).nonzero()
        index = wrong[0].tolist()
        value = gradient[tuple(index)].item()
        return self._error(
            f"{len(wrong)} of {gradient.numel()} elements of the gradient of {name!r} are not finite: "
            f"the first is {value} at {index}",
            "lower the learning rate, or look for a division by zero or a logarithm of zero in the loss",
        )

    def _error(self, message: str, hint: str) -> DataError:
        prefix = f"{self.where}: " if self.where else ""
        return DataError(f"{prefix}{self._given}: {message}", hint)


def _shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    return {
        name: tuple(parameter.shape)
        for name, parameter in module.named_parameters()
        if parameter.requires_grad
    }


# The task of a user's model: its module, its data in shards, its loss and its score.


class UserTask(ModelTask):
    """A task of what the user's function returns: mistakes are told in words, gradients are looked at.

    Raises
    ------
    DataError
        The function cannot be called, or returns what cannot be trained.
    DataError
        There are fewer samples than workers.
    """

    def __init__(self, model: UserFile, settings: TaskSettings) -> None:
        self._model, self._function = model, function_of(model)
        self._watch = Watch(model.path, model.file, settings.seed)
        super().__init__(self._make(settings), "score", self._another, settings)
        if settings.holds_out and self._parts.score is None:
            raise DataError(
                f"{model.make} returned no score, which evaluate needs",
                "return module, data, loss, score: a function of the module that returns a number; or remove "
                "evaluate",
            )
        self._has_names = isinstance(self._first(self._parts), Mapping)

    def _make(self, settings: TaskSettings) -> Parts:
        return read_parts(call(self._model, self._function, settings.seed), self._model.make)

    def _another(self) -> nn.Module:
        self._parts = self._make(self._settings)
        return self._parts.module

    def build(self) -> nn.Module:
        """Return the module as the user's function has made it; another call makes another."""
        module = super().build()
        for parameter in module.parameters():
            parameter.data = parameter.data.contiguous()
        self._watch.guard(module.train(), self._has_names)
        return module

    def samples(self, step: int, worker: int) -> tuple[tuple[Any, ...], Any]:
        """Inputs of the module, and the target; of named inputs one mapping, which is the target too."""
        self._watch.begin(step, worker)
        with seeded(self._settings.seed, "samples", step, worker):
            return super().samples(step, worker)

    def blaming(self) -> AbstractContextManager[None]:
        return self._watch.blaming()

    def loss(self, outputs: Any, targets: Any) -> Tensor:
        """The user's loss, a scalar."""
        with self._watch.drawing(), self._watch.blaming():
            value = super().loss(outputs, targets)
        return self._watch.loss(value)

    def score(self, model: nn.Module) -> Score | None:
        """The user's score; None if there is none."""
        with self._watch.blaming(), redirect_stdout(sys.stderr):
            score = super().score(model)
        return score and score._replace(value=_number(score.value, self._model.make))

    def _batch(self, data: Any, shard: NDArray[np.int64], draw: Draw) -> Any:
        if isinstance(data, TensorDataset):
            _with_target(data.tensors, self._model.make)
        with self._watch.blaming(), beside(self._model):
            return super()._batch(data, shard, draw)

    def _collate(self, items: list[Any]) -> Any:
        return _collate(items, self._model.make, self._watch.where)

    def tensors(self) -> tuple[Described, ...]:
        """The parameters in gradient-ready order, from a pass of worker 0's first batch.

        Raises DataError if that fails, or if another call of the function returns something else.
        """
        other = self._make(self._settings)
        batches = self._first(self._parts), self._first(other)
        require_same(self._parts, other, batches, self._model.make)
        del other
        module = self.build()
        with one_thread(), self.blaming():
            return tensors_of(module, lambda: self._first_loss(module))

    def _first(self, parts: Parts) -> Any:
        """The first sample of worker 0's shard, as a batch."""
        with seeded(self._settings.seed, "samples", 0, 0):
            only = Draw(self._settings._replace(batch=1), 0, 0)
            return self._batch(parts.data, self._shards[0][:1], only)

    def _first_loss(self, module: nn.Module) -> Tensor:
        inputs, targets = self.samples(0, 0)
        with drawing(self._settings.seed, "forward", 0, 0):
            return self.loss(module(*inputs), targets)


def known_tensors(model: UserFile, settings: TaskSettings) -> tuple[Described, ...]:
    # A file is looked at once for the same settings.
    key = (model, settings)
    if key not in _known:
        if len(_known) >= _KNOWN_MAX:
            _known.clear()
        _known[key] = UserTask(model, settings).tensors()
    return _known[key]


_known: dict[tuple[UserFile, TaskSettings], tuple[Described, ...]] = {}
_KNOWN_MAX = 32


def _collate(items: list[Any], make: str, where: str) -> Any:
    """Samples put together as PyTorch's loaders do it."""
    first = items[0]
    if not isinstance(first, Mapping):
        items = [_with_target(item, make) for item in items]
    try:
        return default_collate(items)
    except (RuntimeError, TypeError, KeyError) as error:
        prefix = f"{where}: " if where else ""
        why = " ".join(str(error).split())
        raise DataError(
            f"{prefix}{make}: the samples of a batch do not fit together: {why}",
            "give all samples the same shapes, as tensors, arrays or numbers",
        ) from error


def _with_target(item: Any, make: str) -> Any:
    """A sample that has an input and a target."""
    if not isinstance(item, tuple | list) or len(item) < 2:
        description = f"{len(item)} value" if isinstance(item, tuple | list) else type(item).__name__
        raise DataError(
            f"{make}: a sample must be (input, target), found {description}",
            "give the target too; or a mapping of named inputs, which the loss gets as well",
        )
    return item


def _number(score: Any, make: str) -> float:
    """What the user's score returned, as a number."""
    try:
        value = float(score)
    except (TypeError, ValueError, RuntimeError):
        has_many = isinstance(score, Tensor) and score.numel() != 1
        description = f"a tensor of {' x '.join(map(str, score.shape))}" if has_many else kind_of(score)
        raise DataError(
            f"{make}: the score must be a number, found {description}",
            "return one that is larger for better models",
        ) from None
    if not math.isfinite(value):
        raise DataError(f"{make}: the score is {value}", "return a finite number")
    return value
