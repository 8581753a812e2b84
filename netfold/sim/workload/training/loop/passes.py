"""A worker's forward and backward pass: its loss, and each tensor's gradient as soon as it is ready."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn

from netfold.sim.workload.workload import keyed

Loss = Callable[[nn.Module, int, int], Tensor]  # of a model, on the batch of a step of a worker
Sink = Callable[[str, Tensor], None]  # takes a tensor's name and its gradient


class Passes:
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
    """

    def __init__(self, model: nn.Module, names: Iterable[str], loss: Loss, seed: int | None = None) -> None:
        self._model, self._loss, self._seed = model, loss, seed
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
            with one_thread(), self._drawing(step, worker):
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
def drawing(seed: int, purpose: str, *key: int) -> Iterator[None]:
    """PyTorch's global CPU generator with a keyed seed; afterwards it is as before."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(keyed(seed, purpose, *key).integers(2**63)))
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
