"""The state of the communication hook: a codec, a thread and a process group of its own, for each model.

And the way from DDP's buckets to those of codecs, and back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
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
from netfold.sim.workload.fusion import DDP_BYTES, Bucket, BySize, fuse_tensors
from netfold.sim.workload.layers import named_tensors, place_tensors, unnamed_tensors
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

# The buckets that codecs see: whole layers of a model, the same in every step.
#
# DDP forms its buckets anew after the first steps, and puts tensors of one layer into two buckets. A codec
# remembers things by bucket, and a layer must not be split. So codecs have buckets of their own, by the rule
# of `fusion: {kind: size}` in a scenario: whole layers, the last one of the model first, as backward meets
# them. What DDP hands in is put into them parameter by parameter.


_TENSORS_SHOWN = 3


@dataclass(frozen=True)
class ParameterLayout:
    """The buckets of a model; of each parameter, its bucket and its tensor with the offset there."""

    buckets: tuple[Bucket, ...]
    places: Mapping[torch.Tensor, tuple[int, Tensor]]

    @property
    def described(self) -> list[list[str]]:
        """The tensors of each bucket, in words: what a saved state must have in common with it."""
        return [[_in_words(tensor) for tensor in bucket.tensors] for bucket in self.buckets]


def parameter_names(parameters: Iterable[tuple[str, torch.Tensor]]) -> dict[torch.Tensor, str]:
    """The names of parameters, in their order, from `Module.named_parameters()`.

    Raises
    ------
    DataError
        It is something else.
    """
    try:
        names = {parameter: name for name, parameter in parameters}
    except (TypeError, ValueError):
        names = {}
    if not names or not all(isinstance(key, torch.Tensor) and isinstance(names[key], str) for key in names):
        raise DataError(
            "`parameters` has no names and parameters",
            "give the model's own: parameters=model.named_parameters()",
        )
    return names


def make_layout(
    parameters: Sequence[torch.Tensor], names: Mapping[torch.Tensor, str], bucket_bytes: int
) -> ParameterLayout:
    """The buckets of a model.

    Parameters
    ----------
    parameters
        All that have gradients, in the order of the model.
    names
        Of these and possibly others; their order counts. Empty: unknown. Then a matrix begins a layer, and
        the vectors after it belong to it.
    bucket_bytes
        Size from which on a bucket is full, counted in float32.

    Raises
    ------
    DataError
        A parameter has no name.
    """
    if names:
        if missing := [tuple(parameter.shape) for parameter in parameters if parameter not in names]:
            raise DataError(
                f"the model has a parameter of shape {missing[0]} that `parameters` does not name",
                "give the names of the model that DistributedDataParallel wraps, and a state to each model",
            )
        wanted = set(parameters)
        parameters = [parameter for parameter in names if parameter in wanted]
        tensors = named_tensors(
            [names[parameter] for parameter in parameters],
            [tuple(parameter.shape) for parameter in parameters],
        )
    else:
        tensors = unnamed_tensors([tuple(parameter.shape) for parameter in parameters])
    backward = tuple(reversed(tensors))
    buckets, members = fuse_tensors(place_tensors(backward), BySize(bucket_bytes))
    owners = list(reversed(parameters))
    places = {
        owners[member]: (bucket.index, tensor)
        for bucket, indices in zip(buckets, members, strict=True)
        for member, tensor in zip(indices, bucket.tensors, strict=True)
    }
    return ParameterLayout(buckets, places)


def different(own: Sequence[Sequence[str]], other: Sequence[Sequence[str]]) -> str:
    """Where the tensors of two layouts differ, in words; empty if nowhere."""
    for index in range(max(len(own), len(other))):
        outline, two = (_outline(each[index]) if index < len(each) else "" for each in (own, other))
        if list(own[index : index + 1]) != list(other[index : index + 1]):
            return f"bucket {index} has {two or 'no tensors'} there, {outline or 'no tensors'} here"
    return ""


def _outline(tensors: Sequence[str]) -> str:
    more = len(tensors) - _TENSORS_SHOWN
    return ", ".join(tensors[:_TENSORS_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _in_words(tensor: Tensor) -> str:
    return f"{tensor.name} {'x'.join(map(str, tensor.shape)) or 'scalar'}"


class Assembly:
    """Collects gradients until a bucket of the layout is complete, runs its round, and writes the mean back.

    The layout is made in the first step, of all parameters that DDP hands in until its last bucket.

    Parameters
    ----------
    run
        A round: from this worker's gradient to the mean.
    names
        Of the model's parameters; empty: unknown.
    bucket_bytes
        Size from which on a bucket of codecs is full.
    """

    def __init__(
        self, run: Callable[[Part, Gradient], Gradient], names: Mapping[torch.Tensor, str], bucket_bytes: int
    ) -> None:
        self._run, self._names, self._bucket_bytes = run, names, bucket_bytes
        self._layout: ParameterLayout | None = None
        self._expected: Sequence[Sequence[str]] | None = None  # the layout of a state that was loaded
        self._waiting: list[Handed] = []  # buckets of DDP that wait for the layout
        self._gradients: list[Gradient] = []  # each bucket's gradient
        self._given: list[list[tuple[Handed, int]]] = []  # each bucket's parameters, and who gave them

    @property
    def tensors(self) -> list[list[str]] | None:
        """The tensors of the layout, in words; None if there is none yet."""
        if self._layout is None:
            return None if self._expected is None else [list(tensors) for tensors in self._expected]
        return self._layout.described

    def expect(self, tensors: Sequence[Sequence[str]] | None) -> None:
        """Require that the layout has these tensors, now or once it is made.

        Raises
        ------
        DataError
            It has others.
        """
        self._expected = tensors
        if self._layout is not None and tensors is not None:
            self._check(self._layout)

    def take(self, handed: Handed) -> None:
        """Take a bucket of DDP, and run the rounds that it completes, in the order of their numbers.

        Raises
        ------
        RunError, DataError
            A round fails, or the parameters are those of another model.
        """
        if self._layout is None:
            self._waiting.append(handed)
            if not handed.is_last:
                return
            self._lay_out()
            waiting, self._waiting = self._waiting, []
        else:
            waiting = [handed]
        complete = sorted(bucket for ddp_bucket in waiting for bucket in self._put(ddp_bucket))
        for bucket in complete:
            self._round(bucket)

    def release(self) -> None:
        """Give all buckets back as they are."""
        handed_over = {id(handed): handed for sources in self._given for handed, _ in sources}
        handed_over |= {id(handed): handed for handed in self._waiting}
        self._waiting, self._given = [], [[] for _ in self._given]
        for ddp_bucket in handed_over.values():
            ddp_bucket.finish()

    def _lay_out(self) -> None:
        """Make the layout: DDP's buckets begin with the model's last parameters."""
        parameters = [parameter for handed in reversed(self._waiting) for parameter in handed.parameters]
        layout = make_layout(parameters, self._names, self._bucket_bytes)
        self._check(layout)
        self._layout = layout
        self._gradients = [np.zeros(bucket.elements, np.float32) for bucket in layout.buckets]
        self._given = [[] for _ in layout.buckets]

    def _check(self, layout: ParameterLayout) -> None:
        if self._expected is None:
            return
        if difference := different(layout.described, self._expected):
            raise DataError(
                f"the state that was loaded is of another model: {difference}",
                "load it for the same model, with the same `parameters` and `bucket`",
            )

    def _put(self, handed: Handed) -> list[int]:
        """Copy the gradients of a bucket of DDP; returns the buckets that this completes."""
        assert self._layout is not None
        complete = []
        with handed.on_stream():
            for number, (parameter, gradient) in enumerate(
                zip(handed.parameters, handed.gradients, strict=True)
            ):
                target = self._layout.places.get(parameter)
                if target is None:
                    raise RunError(
                        f"DDP handed in a parameter of shape {tuple(parameter.shape)} that the model did not "
                        "have in the first step",
                        "give each model a state of its own",
                    )
                bucket, tensor = target
                _view(self._gradients[bucket], tensor.place, gradient).copy_(gradient)
                sources = self._given[bucket]
                sources.append((handed, number))
                if len(sources) == len(self._layout.buckets[bucket].tensors):
                    complete.append(bucket)
        return complete

    def _round(self, number: int) -> None:
        """Run a round, write the mean to the buckets of DDP, and give back those that are complete."""
        assert self._layout is not None
        bucket, sources = self._layout.buckets[number], self._given[number]
        taken_bytes = sum(
            ddp_bucket.gradients[index].element_size() * ddp_bucket.gradients[index].numel()
            for ddp_bucket, index in sources
        )
        part = Part(sources[0][0].step, number, bucket.name, bucket.tensors, taken_bytes)
        mean = self._run(part, self._gradients[number])
        self._given[number] = []
        mean = np.require(mean, requirements=["C", "W"])  # PyTorch demands this of an array
        for handed, index in sources:
            _, tensor = self._layout.places[handed.parameters[index]]
            gradient = handed.gradients[index]
            with handed.on_stream():
                gradient.copy_(_view(mean, tensor.place, gradient))
            handed.left -= 1
            if not handed.left:
                handed.finish()


def _view(flat: Gradient, place: slice, like: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(flat[place]).view(like.shape)


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
        names = {} if parameters is None else parameter_names(parameters)
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
        reductions: list[Gradient] = []
        self._fifo.submit(partial(self._guard, lambda: reductions.append(run(part, gradient))))
        self._fifo.drain()
        self._raise_failure()
        return reductions[0]

    @property
    def workers(self) -> int:
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
            identity: dict[str, Any] = {
                "settings": self._settings,
                "worker": [self._wire.rank, self._wire.workers],
            }
            for name, value in identity.items():
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
        self._guard(handed.check)
        self._guard(partial(self._assembly.take, handed))
        if self._failure is not None:
            self._assembly.release()
            if not handed.future.done():
                handed.finish()

    def _guard(self, job: Callable[[], object]) -> None:
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


def _rate_of(rate: float | Callable[[int], float] | None) -> Callable[[int], float] | None:
    return rate if rate is None or callable(rate) else lambda step: rate


def _bucket_bytes(bucket: str | int) -> int:
    size_bytes = SIZE.parse(bucket) if isinstance(bucket, str) else bucket
    if isinstance(size_bytes, bool) or not isinstance(size_bytes, int) or size_bytes < 1:
        raise DataError(f"bucket is {bucket!r}", "give a size such as '25MiB', or bytes")
    return size_bytes


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
    return max((option._timeout for option in options if option is not None), default=None)


def _tensors(state: Mapping[str, NDArray[Any]]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.array(array)) for name, array in state.items()}


def _arrays(state: Mapping[str, torch.Tensor]) -> dict[str, NDArray[Any]]:
    return {name: tensor.cpu().numpy() for name, tensor in state.items()}
