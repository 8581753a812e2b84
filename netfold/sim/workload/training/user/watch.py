"""Looks at every pass of a user's module: who is running, and what its gradients are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn

from netfold.errors import NetfoldError, UserModelError
from netfold.sim.workload.training.user.errors import told
from netfold.sim.workload.training.user.source import seeded


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
        self._known: WeakSet[nn.Module] = WeakSet()  # whose gradients are looked at
        self._ready: dict[
            str, UserModelError | None
        ] = {}  # gradients of this pass, and what is wrong with them

    def begin(self, step: int, worker: int) -> None:
        """Begin the pass of a worker in a step."""
        self._pass = step, worker

    @property
    def where(self) -> str:
        """The pass that is under way, in words; empty before the first."""
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
        named = {"forward": forward, "__module__": original.__module__, "__doc__": original.__doc__}
        module.__class__ = type(original.__name__, (original,), named)

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
        """Seed the global generators for the pass that is under way, and restore them afterwards."""
        return seeded(self._seed, "dropout", *(self._pass or ()))

    @contextmanager
    def blaming(self) -> Iterator[None]:
        """Tell exceptions of the user's code in words."""
        try:
            yield
        except NetfoldError:
            raise
        except (Exception, SystemExit) as error:  # whatever the user's code does
            raise told(error, self._path, self._given, self.where) from error

    def loss(self, value: Any) -> Tensor:
        """A loss that can be followed backward, whose gradients are looked at when the pass ends.

        Raises
        ------
        UserModelError
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
        if (found := _shapes(module)) != self._shapes:
            raise self._changed(found)
        for name in self._shapes:
            if (error := self._ready.get(name)) is not None:
                raise error

    def _changed(self, found: dict[str, tuple[int, ...]]) -> UserModelError:
        for name in {**self._shapes, **found}:
            before, now = (
                " x ".join(map(str, one[name])) or "a scalar" if name in one else "missing"
                for one in (self._shapes, found)
            )
            if before != now:
                break
        return self._error(
            f"the shape of the parameter {name!r} has changed: it was {before}, it is {now}",
            "create all parameters when the module is made, and do not replace them",
        )

    def _not_finite(self, name: str, gradient: Tensor) -> UserModelError:
        wrong = (~gradient.isfinite()).nonzero()
        place = wrong[0].tolist()
        value = gradient[tuple(place)].item()
        return self._error(
            f"{len(wrong)} of {gradient.numel()} elements of the gradient of {name!r} are not finite: "
            f"the first is {value} at {place}",
            "lower the learning rate, or look for a division by zero or a logarithm of zero in the loss",
        )

    def _error(self, message: str, hint: str) -> UserModelError:
        before = f"{self.where}: " if self.where else ""
        return UserModelError(f"{before}{self._given}: {message}", hint)


def _shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(one.shape) for name, one in module.named_parameters() if one.requires_grad}
