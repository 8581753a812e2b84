"""The state of the communication hook: a codec, a thread and a process group of its own, for each model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from netfold.errors import DataError, NetfoldError, RunError
from netfold.homomorphic.codec import Codec
from netfold.homomorphic.message import Gradient, Tensor
from netfold.sim.workload.fusion import DDP_BYTES
from netfold.torch.assembly import Assembly, named
from netfold.torch.exchange import (
    BucketRounds,
    Fifo,
    GradBucket,
    Handed,
    Part,
    Report,
    check_tensor,
    require_same,
)
from netfold.torch.wire import BACKENDS, Wire, check_codec, make_codec
from netfold.units import SIZE

# The state of a communication hook: a codec, a thread and a process group of its own.


class State:
    """What `hook` needs: one for each model, made by all workers in the same order.

    Parameters
    ----------
    codec
        Its kind, "packed", or the codec. **options are those of a scenario's codec.
    parameters
        `model.named_parameters()`: names, and with them layers, for codecs that work by tensor or layer.
        Left out, layers are found from the shapes.
    bucket
        Size from which on a bucket of the codec is full: "25MiB", or bytes.
    learning_rate
        Of every step, or a function of the step's number. Given, codecs that need it work, and what `hook`
        returns is what is to be subtracted from the weights: train with `torch.optim.SGD(…, lr=1.0)`, without
        momentum.
    seed
        Of the codec's random draws, the same at all workers.
    process_group
        That of the model; by default all workers. Messages have a new group of the same workers, backend and
        timeout.

    Raises
    ------
    ScenarioError
        The codec or an option is unknown, with the text that a scenario file gets.
    DataError
        The codec needs what a hook does not know, has no room for the workers, or torch.distributed is not
        ready.
    RunError
        The workers have different settings.
    """

    def __init__(
        self,
        codec: Codec | str,
        /,
        *,
        parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
        bucket: str | int = DDP_BYTES,
        learning_rate: float | Callable[[int], float] | None = None,
        seed: int = 1,
        process_group: dist.ProcessGroup | None = None,
        **options: Any,
    ) -> None:
        self.codec = make_codec(codec, options)
        bucket_bytes = _bucket_bytes(bucket)
        names = {} if parameters is None else named(parameters)
        if not dist.is_initialized():
            raise DataError(
                "torch.distributed is not ready", "call torch.distributed.init_process_group before State"
            )
        workers = dist.get_world_size(process_group)
        if workers < 1:
            raise DataError("this worker is not in the process group", "make the state only in the group's")
        check_codec(self.codec, workers, learning_rate is not None)
        self._wire = _make_wire(process_group)
        self._settings = f"{self.codec!r} with seed {seed} and buckets of {SIZE.format(bucket_bytes)}"
        require_same(self._wire, self._settings, "codec, options, seed and bucket")
        self._rate = _rate_of(learning_rate)
        self._rounds = BucketRounds(self.codec, self._wire, seed, self._rate)
        self._assembly = Assembly(self._mean_of, names, bucket_bytes)
        self._fifo = Fifo(f"netfold {self.codec.kind}")
        self._failure: BaseException | None = None
        self._step = 0  # number of the next backward pass
        self._calls: dict[int, int] = {}  # calls of `reduce`, by part

    @property
    def step(self) -> int:
        """Backward passes with a synchronisation so far."""
        return self._step

    def hand_in(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Take a bucket of DDP; see `hook`.

        What fails is raised at the end of the backward pass, when DDP has done its own work: a hook that
        raises would leave it in a state that it does not expect.
        """
        handed = Handed(self._step, bucket)
        is_in_backward = torch._C._current_graph_task_id() >= 0
        if handed.is_last:
            self._step += 1
            if is_in_backward:
                _at_end_of_backward(partial(_at_end_of_backward, self._end_backward))  # after that of DDP
        self._fifo.submit(partial(self._take, handed))
        if handed.is_last and not is_in_backward:  # `join`: zeros of a worker that has no more batches
            self._end_backward()
        return handed.future

    def reduce(self, number: int, tensor: torch.Tensor, is_mean: bool) -> Gradient:
        """The mean of a flat tensor over workers, or its sum, as float32; waits for it.

        The tensors of a model are numbered; each is reduced once in a step. See `ReduceScatter`.

        Raises
        ------
        RunError
            As `hook`, or a sum is asked for where a learning rate is given.
        """
        self._raise_failure()
        name = f"module {number}"
        check_tensor(tensor, name)
        if self._rate is not None and not is_mean:
            raise RunError(
                f"{name}: FSDP asks for a sum, and with a learning_rate netfold gives updates",
                "use float32 or bfloat16 gradients, without set_force_sum_reduction_for_comms",
            )
        gradient = tensor.detach().to("cpu", torch.float32).numpy()
        vector = Tensor(f"module{number}", gradient.shape, "")
        part = Part(
            self._calls.get(number, 0), number, name, (vector,), gradient.size * tensor.element_size()
        )
        self._calls[number] = part.step + 1
        run = self._mean_of if is_mean else self._sum_of
        found: list[Gradient] = []
        self._fifo.submit(partial(self._guarded, lambda: found.append(run(part, gradient))))
        self._fifo.drain()
        self._raise_failure()
        return found[0]

    @property
    def workers(self) -> int:
        """Workers of the group."""
        return self._wire.workers

    def report(self) -> Report:
        """What this worker has sent so far: bytes by bucket and step, compression, notes of the codec."""
        self._fifo.drain()
        return Report(self._rounds.log)

    def state_dict(self) -> dict[str, Any]:
        """What the next step depends on, for `torch.save`; between two steps. Every worker has its own."""
        self._fifo.drain()
        self._raise_failure()
        server = self._rounds.server
        return {
            "settings": self._settings,
            "worker": [self._wire.rank, self._wire.workers],
            "step": self._step,
            "calls": dict(self._calls),
            "messages": self._rounds.messages,
            "tensors": self._assembly.tensors,
            "encoder": _tensors(self._rounds.encoder.state()),
            "server": {} if server is None else _tensors(server.state()),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on as the state that was saved would have, bit for bit.

        Raises
        ------
        DataError
            It is of another codec, worker, number of workers or model.
        """
        self._fifo.drain()
        try:
            own: dict[str, Any] = {
                "settings": self._settings,
                "worker": [self._wire.rank, self._wire.workers],
            }
            for name, value in own.items():
                if state[name] != value:
                    raise DataError(f"the state has the {name} {state[name]}, here are {value}", _SAME)
            self._assembly.expect(state["tensors"])
            self._rounds.encoder.restore(_arrays(state["encoder"]))
            if self._rounds.server is not None:
                self._rounds.server.restore(_arrays(state["server"]))
            self._step, self._rounds.messages = int(state["step"]), int(state["messages"])
            self._calls = dict(state["calls"])
        except NetfoldError:
            raise
        except Exception as error:  # any codec may raise anything if it did not save this
            raise DataError(f"the state cannot be loaded: {type(error).__name__}: {error}", _SAME) from error

    def close(self) -> None:
        """Wait for what is under way, and end the thread; nothing can be sent after this."""
        self._fifo.close()
        self._failure = self._failure or RunError("the state is closed", "make another one")

    def _mean_of(self, part: Part, gradient: Gradient) -> Gradient:
        return self._rounds.mean(self._rounds.run(part, gradient), part.step)

    def _sum_of(self, part: Part, gradient: Gradient) -> Gradient:
        return self._rounds.run(part, gradient).total

    def _take(self, handed: Handed) -> None:
        if self._failure is not None:
            handed.finish()
            return
        self._guarded(handed.check)
        self._guarded(partial(self._assembly.take, handed))
        if self._failure is not None:
            self._assembly.release()
            if not handed.future.done():
                handed.finish()

    def _guarded(self, job: Callable[[], object]) -> None:
        """Do a job in the thread; what it raises, the user's thread will."""
        if self._failure is not None:
            return
        try:
            job()
        except BaseException as error:
            self._failure = error

    def _end_backward(self) -> None:
        """At the end of a backward pass: wait for its rounds, and raise what failed."""
        self._fifo.drain()
        self._raise_failure()

    def _raise_failure(self) -> None:
        match self._failure:
            case None:
                return
            case RunError() as error:
                raise RunError(error.message, error.hint) from (error.__cause__ or error)
            case error:
                raise error


_SAME = "load what the same worker saved, with the same codec, options, number of workers and model"


def _at_end_of_backward(call: Callable[[], None]) -> None:
    # It runs in this thread, after what has been queued before.
    torch.autograd.Variable._execution_engine.queue_callback(call)


def _rate_of(given: float | Callable[[int], float] | None) -> Callable[[int], float] | None:
    return given if given is None or callable(given) else lambda step: given


def _bucket_bytes(bucket: str | int) -> int:
    found = SIZE.parse(bucket) if isinstance(bucket, str) else bucket
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        raise DataError(f"bucket is {bucket!r}", "give a size such as '25MiB', or bytes")
    return found


def _make_wire(group: dist.ProcessGroup | None) -> Wire:
    """The wire over a new group of the same workers, backend and timeout."""
    backend: str = dist.get_backend(group)
    if backend not in BACKENDS:  # such as one for each type of device
        backend = "gloo"
    ranks = None if group is None else dist.get_process_group_ranks(group)
    is_part = ranks is not None
    return Wire(dist.new_group(ranks, _timeout_of(group), backend, use_local_synchronization=is_part))


def _timeout_of(group: dist.ProcessGroup | None) -> timedelta | None:
    """The longest that one of a group's backends waits; None, PyTorch's own, if they do not say."""
    group = group or dist.group.WORLD
    assert group is not None
    options = [getattr(group._get_backend(device), "options", None) for device in group._device_types]
    return max((one._timeout for one in options if one is not None), default=None)


def _tensors(state: Mapping[str, NDArray[Any]]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.array(array)) for name, array in state.items()}


def _arrays(state: Mapping[str, torch.Tensor]) -> dict[str, NDArray[Any]]:
    return {name: tensor.cpu().numpy() for name, tensor in state.items()}
