"""Records gradients and their times from real training with PyTorch's DDP.

    with netfold.capture(model, "folder", steps=10):    # on every rank, around the training loop
        train()

or, without changing the script, `netfold capture --out folder -- torchrun … train.py`.
docs/explanation/recordings.md describes what is written; `workload: {kind: trace, path: folder}` replays it.

`recording_files` holds what every rank writes, and how the last one joins all of it; `site` is what the
command puts into the processes of a training.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from netfold.errors import DataError, NetfoldError
from netfold.sim.capture.recording_files import (
    DTYPES,
    STEPS_MAX,
    TENSORS_MAX,
    RecordingParts,
    TensorRow,
    TraceFile,
    file_name,
    most_bytes,
    read_trace,
    require_space,
    write_values,
)
from netfold.sim.files import package_version

# The buckets of a DDP model: which parameters are summed together, and in which order.


Buckets = list[list[int]]
"""For each bucket, the places of its parameters in DDP's list."""

NOT_REBUILT = (
    "DDP kept its first buckets, by the order of the parameters and not by that in which gradients are "
    "ready: it does so with find_unused_parameters"
)
UNKNOWN = "DDP does not say which buckets it has: all tensors are in one"


class Reduced(NamedTuple):
    """A parameter whose gradients DDP sums."""

    name: str
    parameter: Any
    is_sparse: bool  # its gradients have rows


def reduced_parameters(ddp: Any) -> list[Reduced]:
    """The parameters, in the order by which DDP numbers them."""
    parameters, expect_sparse = ddp._build_params_for_reducer()  # the reducer has no other list of them
    names = {id(parameter): name for name, parameter in ddp.module.named_parameters(remove_duplicate=False)}
    return [
        Reduced(names[id(parameter)], parameter, bool(is_sparse))
        for parameter, is_sparse in zip(parameters, expect_sparse, strict=True)
    ]


def buckets_of(ddp: Any) -> tuple[Buckets, str]:
    """The buckets that DDP has now, and a note for the reader of the recording.

    Parameters are in the order in which DDP lays them out; where it has kept its first buckets, in reverse,
    since later layers are ready first.
    """
    facts = ddp._get_ddp_logging_data()
    rebuilt = str(facts.get("rebuilt_per_bucket_param_indices", ""))
    if rebuilt:
        return [list(map(int, indices.split())) for indices in rebuilt.split(",")], ""
    parameters, expect_sparse = ddp._build_params_for_reducer()
    sizes = [int(size) for size in str(facts.get("bucket_sizes", "")).split(",") if size.strip()]
    for buckets in _first_buckets(ddp, parameters, expect_sparse):
        if sizes == [sum(_bytes(parameters[index]) for index in bucket) for bucket in buckets]:
            return [bucket[::-1] for bucket in buckets], NOT_REBUILT
    return [list(range(len(parameters)))[::-1]], UNKNOWN


def _first_buckets(ddp: Any, parameters: list[Any], expect_sparse: list[bool]) -> list[Buckets]:
    """What the first buckets may be, by the limits that DDP uses in its several modes."""
    from torch import distributed

    dist: Any = distributed
    first_bytes, cap_bytes = int(dist._DEFAULT_FIRST_BUCKET_BYTES), int(ddp.bucket_bytes_cap)
    candidates = []
    for limits in ([first_bytes, cap_bytes], [cap_bytes], [sys.maxsize]):
        indices, _ = dist._compute_bucket_assignment_by_size(parameters, limits, expect_sparse)
        candidates.append([list(bucket) for bucket in reversed(indices)])
    return candidates


def _bytes(parameter: Any) -> int:
    return int(parameter.numel() * parameter.element_size())


# What a recording asks of a model: how its gradients are kept, and where its outputs are.


OUTPUTS_MAX = 1000
"""The most outputs of a forward pass that are looked at."""


def row_of(reduced: Reduced) -> TensorRow:
    """How a parameter's gradients are kept."""
    parameter = reduced.parameter
    has_rows = reduced.is_sparse and parameter.dim() > 1
    return TensorRow.model_construct(
        name=reduced.name,
        shape=list(parameter.shape) or [1],
        dtype=str(parameter.dtype).removeprefix("torch."),
        layout="rows" if has_rows else "dense",
    )


def require_floats(reduced: list[Reduced]) -> None:
    """Refuse models whose gradients cannot be kept, or are too many."""
    if not 0 < len(reduced) <= TENSORS_MAX:
        raise DataError(
            f"the model has {len(reduced)} parameters with gradients, 1 to {TENSORS_MAX} can be recorded"
        )
    for tensor in reduced:
        dtype = str(tensor.parameter.dtype).removeprefix("torch.")
        if dtype not in DTYPES:
            raise DataError(
                f"{tensor.name}: its gradients are {dtype}, must be {', '.join(DTYPES)}", "use model.float()"
            )
        if tensor.parameter.numel() == 0:
            raise DataError(f"{tensor.name}: has no elements", "freeze it, with requires_grad_(False)")


def tensors_in(outputs: Any, most: int = OUTPUTS_MAX) -> list[Any]:
    """The tensors in what a forward pass returned."""
    import torch
    from torch.utils import _pytree as pytree

    if isinstance(outputs, torch.Tensor):
        return [outputs]
    if hasattr(outputs, "__dataclass_fields__"):
        outputs = dict(vars(outputs))
    if isinstance(outputs, dict):  # also those of subclasses, which pytree takes for leaves
        outputs = list(outputs.values())
    leaves = pytree.tree_leaves(outputs)
    return [leaf for leaf in leaves[:most] if isinstance(leaf, torch.Tensor)]


# What is to be recorded, and how a launcher tells it to the processes of a training.


VARIABLE = "NETFOLD_CAPTURE"
STEPS = 10
SKIP = 1


@dataclass(frozen=True)
class CaptureSettings:
    folder: str  # an absolute path
    steps: int = STEPS
    skip: int = SKIP  # first steps that are not recorded: DDP makes new buckets after the first
    run: str = ""
    """The launcher's name for this run; empty: rank 0 makes one up."""

    def as_text(self) -> str:
        return json.dumps(asdict(self))


def check_settings(folder: str | Path, steps: int, skip: int) -> CaptureSettings:
    """Settings with their limits checked.

    Raises
    ------
    DataError
        A number is beyond its limits, or there is such a folder already.
    """
    for name, value, least, most in (("steps", steps, 1, STEPS_MAX), ("skip", skip, 1, 10**9)):
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            why = ": DDP makes new buckets after its first step" if name == "skip" else ""
            raise DataError(f"{name} must be a whole number from {least} to {most:,}{why}, found {value!r}")
    path = Path(folder).absolute()
    if os.path.lexists(path):
        raise DataError(f"{folder}: is there already", "name another folder, or remove it")
    return CaptureSettings(str(path), steps, skip)


def from_environment() -> CaptureSettings | None:
    """What a launcher wants; None without one."""
    text = os.environ.get(VARIABLE)
    return CaptureSettings(**json.loads(text)) if text else None


# Hooks into a DDP model, which record its gradients and their times on one rank.
#
# The hooks run before DDP's own, so that they see the local gradient: what DDP is about to sum. With gradient
# accumulation that is the sum of the micro-batches, in the one backward pass whose gradients are summed.
# Copying a gradient takes time; the clock of the recording stands still meanwhile.


@dataclass
class _Times:
    """The clock of one step, nanoseconds; it stands still while recording takes time."""

    started_ns: int
    before_ns: int = 0
    hidden_ns: int = 0
    """The time that recording took."""
    forward_end_ns: int = 0
    backward_start_ns: int | None = None
    ready_ns: dict[int, int] = field(default_factory=dict)
    """When each gradient was ready, by the place of its parameter."""
    synced_ns: int = 0
    micro_batches: int = 0

    def now(self) -> int:
        return time.perf_counter_ns() - self.started_ns - self.hidden_ns


class Recorder:
    """Records the steps of a DDP model on one rank, until it has as many as wanted.

    Parameters
    ----------
    ddp
        The model, a `DistributedDataParallel`.
    settings
        What is to be recorded.
    parts
        Where this rank writes.
    facts
        Of how the recording is made, for trace.json.

    Raises
    ------
    DataError
        The model cannot be recorded, or the disk has no room.
    """

    def __init__(
        self, ddp: Any, settings: CaptureSettings, parts: RecordingParts, facts: Mapping[str, Any]
    ) -> None:
        import torch.distributed as dist

        self.is_done = False
        self.problem: NetfoldError | None = None  # why there is nothing to give
        self._ddp, self._settings, self._parts, self._facts = ddp, settings, parts, facts
        self._rank, self._world = dist.get_rank(ddp.process_group), dist.get_world_size(ddp.process_group)
        self._reduced = reduced_parameters(ddp)
        self._rows = [row_of(tensor) for tensor in self._reduced]
        require_floats(self._reduced)
        self._seen = 0  # synchronized steps, also those that are skipped
        self._steps: list[dict[str, Any]] = []
        self._times: _Times | None = None
        self._synced_at_ns: int | None = None  # perf_counter at the end of the step before
        self._copies: dict[int, Any] = {}
        self._is_synced = False  # the backward pass to come sums gradients
        self._is_backward = False
        self._spent_ns = 0
        parts.path.mkdir(parents=True, exist_ok=True)
        require_space(parts.path, most_bytes(self._rows) * settings.steps * self._world)
        parts.begin(self._rank, {"world_size": self._world, "steps": settings.steps})
        self._handles = [
            ddp.register_forward_pre_hook(self._forward_begins),
            ddp.register_forward_hook(self._forward_ends),
            *(
                tensor.parameter.register_post_accumulate_grad_hook(self._ready_hook(index))
                for index, tensor in enumerate(self._reduced)
            ),
        ]
        self._say_what_is_coming()

    def finish(self) -> None:
        """Give what has been recorded; does nothing a second time.

        Raises
        ------
        NetfoldError
            There is nothing to give, or ranks do not fit each other.
        """
        if self.is_done:
            if self.problem is not None:
                raise self.problem
            return
        self._stop()
        buckets, note = buckets_of(self._ddp)
        order = [tensor_index for bucket in buckets for tensor_index in bucket]
        positions = {tensor_index: position for position, tensor_index in enumerate(order)}
        part = {
            "model": type(self._ddp.module).__name__,
            "world_size": self._world,
            "tensors": [self._rows[tensor_index].model_dump() for tensor_index in order],
            "buckets": [[positions[tensor_index] for tensor_index in bucket] for bucket in buckets],
            "steps": [self._in_order(step, buckets, order) for step in self._steps],
            "made_by": {**self._facts, "skipped_steps": self._settings.skip},
            "notes": [note] if note else [],
            "wanted_steps": self._settings.steps,
        }
        try:
            self._parts.finish(self._rank, part)
        except NetfoldError as error:
            self.problem = error
            raise

    def fail(self, why: str) -> None:
        """Stop, with nothing to give."""
        if not self.is_done:
            self._stop()
            self.problem = DataError(f"nothing was recorded: {why}")
            self._parts.fail(self._rank, why)

    def _stop(self) -> None:
        self.is_done = True
        for handle in self._handles:
            handle.remove()
        self._copies.clear()

    def _say_what_is_coming(self) -> None:
        if self._rank == 0:
            size_bytes = most_bytes(self._rows)
            print(
                f"netfold capture: {self._settings.steps} steps of {self._world} ranks, after "
                f"{self._settings.skip} that are skipped, up to {size_bytes:,} bytes for each rank and step",
                file=sys.stderr,
                flush=True,
            )

    # Hooks, in the order in which a step calls them.

    def _forward_begins(self, module: Any, inputs: Any) -> None:
        import torch

        if not torch.is_grad_enabled():  # an evaluation
            return
        self._wait_for_device()
        now_ns = time.perf_counter_ns()
        if self._times is None:
            self._times = _Times(now_ns)
            if self._synced_at_ns is not None:
                self._times.before_ns = now_ns - self._synced_at_ns
        self._times.micro_batches += 1
        self._is_synced = bool(self._ddp.require_backward_grad_sync)

    def _forward_ends(self, module: Any, inputs: Any, output: Any) -> None:
        import torch

        times = self._times
        if times is None or not torch.is_grad_enabled() or not self._is_synced:
            return
        self._wait_for_device()
        times.forward_end_ns = times.now()
        times.backward_start_ns = None
        for tensor in tensors_in(output):
            if tensor.requires_grad:
                tensor.register_hook(self._output_hook)

    def _output_hook(self, gradient: Any) -> None:
        self._backward_begins()

    def _backward_begins(self) -> None:
        """At the first gradient of the backward pass, of an output or a parameter."""
        times = self._times
        if times is None or self._is_backward or not self._is_synced or self.is_done:
            return
        import torch

        self._wait_for_device()
        self._is_backward = True
        times.backward_start_ns = times.now()
        torch.autograd.Variable._execution_engine.queue_callback(self._gradients_end)
        if self._ddp.find_unused_parameters and self._is_wanted():
            began_ns = time.perf_counter_ns()
            # Parameters that this pass does not reach keep their gradients, and DDP sums these.
            for index, tensor in enumerate(self._reduced):
                if tensor.parameter.grad is not None:
                    self._copies[index] = self._copy(index, tensor.parameter.grad)
            times.hidden_ns += time.perf_counter_ns() - began_ns

    def _ready_hook(self, position: int) -> Callable[[Any], None]:
        def ready(parameter: Any) -> None:
            times = self._times
            if times is None or not self._is_synced or self.is_done:
                return
            self._backward_begins()
            self._wait_for_device()
            times.ready_ns[position] = times.now()
            if self._is_wanted():
                began_ns = time.perf_counter_ns()
                self._copies[position] = self._copy(position, parameter.grad)
                times.hidden_ns += time.perf_counter_ns() - began_ns

        return ready

    def _gradients_end(self) -> None:
        """All gradients of this rank are ready; DDP's own callback, which waits for the sums, comes next."""
        import torch

        engine = torch.autograd.Variable._execution_engine
        engine.queue_callback(self._step_ends)

    def _step_ends(self) -> None:
        times, self._times = self._times, None
        self._is_backward = False
        if times is None or self.is_done:
            return
        self._wait_for_device()
        times.synced_ns = times.now()
        began_ns = time.perf_counter_ns()
        self._seen += 1
        if self._seen > self._settings.skip:
            try:
                self._write(self._seen - 1, times)
            except (OSError, NetfoldError) as error:  # the training goes on
                self.fail(f"step {self._seen - 1} cannot be written: {error}")
        self._copies.clear()
        if not self.is_done and len(self._steps) == self._settings.steps:
            try:
                self.finish()
            except NetfoldError as error:
                print(f"netfold capture: {error}", file=sys.stderr, flush=True)
        self._synced_at_ns = time.perf_counter_ns()
        if self._steps and not self.is_done:
            self._steps[-1]["recording_ns"] = times.hidden_ns + self._synced_at_ns - began_ns

    def _is_wanted(self) -> bool:
        return self._seen >= self._settings.skip

    def _wait_for_device(self) -> None:
        """Wait until the device has done what it was given; on a processor there is nothing to wait for."""
        device = self._reduced[0].parameter.device
        if device.type == "cuda":
            import torch

            torch.cuda.current_stream(device).synchronize()

    def _copy(self, position: int, gradient: Any) -> Any:
        """A gradient on the CPU as trace.json says it is kept: dense, or as rows."""
        row = self._rows[position]
        detached = gradient.detach().reshape(row.shape) if not gradient.dim() else gradient.detach()
        if row.layout == "rows":
            detached = detached.coalesce() if detached.is_sparse else detached.to_sparse(1)
        elif detached.is_sparse:
            detached = detached.to_dense()
        return detached.to("cpu", self._reduced[position].parameter.dtype, copy=True)

    def _write(self, step: int, times: _Times) -> None:
        """Write the gradients of a step, and keep its times."""
        import torch

        gradients = {self._rows[index].name: copy for index, copy in sorted(self._copies.items())}
        parts = [gradient.values() if gradient.is_sparse else gradient for gradient in gradients.values()]
        facts = {key: value for key, value in asdict(times).items() if key not in ("started_ns", "hidden_ns")}
        record = {**facts, "step": step, "recording_ns": times.hidden_ns, "kept": sorted(self._copies)}
        if all(bool(torch.isfinite(part).all()) for part in parts):
            name = file_name(step, self._rank)
            size_bytes, sha256 = write_values(self._parts.path / name, gradients)
            record |= {"file": name, "bytes": size_bytes, "sha256": sha256}
        self._steps.append(record)

    def _in_order(
        self, step: Mapping[str, Any], buckets: list[list[int]], order: list[int]
    ) -> dict[str, Any]:
        """A step with its times in the order of trace.json; without a file, its gradients were not finite."""
        if "file" not in step:
            return {"step": step["step"], "times": None}
        start_ns = step["backward_start_ns"]
        end_ns = max([start_ns, *step["ready_ns"].values()])
        kept_names = set(step["kept"])
        ready = {index: step["ready_ns"].get(index, start_ns) for index in order}  # unused ones do not wait
        times = {key: step[key] for key in ("file", "bytes", "sha256", "before_ns", "forward_end_ns")}
        times |= {
            "backward_start_ns": start_ns,
            "backward_end_ns": end_ns,
            "synced_ns": max(end_ns, step["synced_ns"]),
            "ready_ns": [ready[index] if index in kept_names else None for index in order],
            "bucket_ready_ns": [max(ready[index] for index in bucket) for bucket in buckets],
            "recording_ns": step["recording_ns"],
            "micro_batches": step["micro_batches"],
        }
        return {"step": step["step"], "times": times}


# `netfold.capture`: records a training loop from inside a script.


@contextmanager
def capture(model: Any, folder: str | Path, steps: int = STEPS, *, skip: int = SKIP) -> Iterator[None]:
    """Record the gradients and times of a training loop, on every rank around the same loop.

        with netfold.capture(model, "folder", steps=10):
            for batch in loader: ...

    The folder is written when all ranks have recorded their steps, and not at all if one of them fails. All
    ranks must see the same file system.

    Parameters
    ----------
    model
        A `DistributedDataParallel`.
    folder
        What is written; there must be nothing of this name.
    steps
        Optimizer steps that are recorded; where the loop ends earlier, those up to there.
    skip
        Steps that are not recorded before these, at least 1: DDP makes new buckets after its first step.

    Raises
    ------
    DataError
        The model is no DDP model or has gradients that are not float32, float16 or bfloat16; a number is
        beyond its limits; there is such a folder; the disk has no room; or nothing was recorded.
    RunError
        What ranks have recorded does not fit together.
    """
    from torch.nn.parallel import DistributedDataParallel

    if not isinstance(model, DistributedDataParallel):
        raise DataError(
            f"a {type(model).__name__} cannot be recorded, the model must be a DistributedDataParallel",
            "model = torch.nn.parallel.DistributedDataParallel(model); FSDP's gradients cannot be recorded",
        )
    recorder = begin(model, check_settings(folder, steps, skip))
    try:
        yield
    except BaseException as error:
        recorder.fail(f"the training ended with {type(error).__name__}: {error}")
        raise
    recorder.finish()


def begin(model: Any, settings: CaptureSettings) -> Recorder:
    # All ranks must call it.
    parts = RecordingParts(
        Path(settings.folder), _run_of_all(model, settings.run), is_watched=bool(settings.run)
    )
    return Recorder(model, settings, parts, _facts(model))


def _run_of_all(model: Any, run_name: str) -> str:
    """A name of this recording that all ranks agree on: that of rank 0."""
    import torch.distributed as dist

    names = [run_name or uuid.uuid4().hex[:12]]
    group = model.process_group
    dist.broadcast_object_list(names, src=dist.get_global_rank(group, 0), group=group)
    return str(names[0])


def _facts(model: Any) -> dict[str, Any]:
    """How a recording is made."""
    import torch
    import torch.distributed as dist

    return {
        "recorded_from": "DistributedDataParallel",
        "netfold": package_version("netfold"),
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "backend": dist.get_backend(model.process_group),
        "device": next(model.parameters()).device.type,
        "threads": torch.get_num_threads(),
        "command": sys.argv,
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
    }


# `netfold capture -- COMMAND`: runs a training, and records it without a change to its script.


HOME = "NETFOLD_CAPTURE_HOME"
SITE = Path(__file__).parent / "site"
NOTHING = (
    "no process of the command wrapped a model in DistributedDataParallel; processes that ignore PYTHONPATH "
    "(python -I, -E, -S) cannot be recorded, and FSDP is not",
)


def launch(
    command: Sequence[str], settings: CaptureSettings
) -> tuple[int, TraceFile | None, tuple[str, ...]]:
    """Run a command, and wait for its recording; signals reach the command as usual.

    The command's exit status, as a shell has it; the recording; or why there is none.

    Raises
    ------
    DataError
        The command cannot be run.
    """
    settings = replace(settings, run=uuid.uuid4().hex[:12])
    parts = RecordingParts(Path(settings.folder), settings.run)
    try:
        process = subprocess.Popen(list(command), env=_environment(settings))
    except OSError as error:
        raise DataError(
            f"{command[0]}: cannot be run: {error.strerror or error}",
            "netfold capture -- torchrun … train.py",
        ) from None
    status = _status(process)
    folder = Path(settings.folder)
    if folder.is_dir():
        return status, read_trace(folder), ()
    return status, None, parts.report() or NOTHING


def _environment(settings: CaptureSettings) -> dict[str, str]:
    paths = [str(SITE), os.environ.get("PYTHONPATH", "")]
    spec = find_spec("netfold")
    homes = spec.submodule_search_locations if spec else None
    home = Path(next(iter(homes or ["."]))).absolute().parent
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        VARIABLE: settings.as_text(),
        HOME: str(home),
    }


def _status(process: subprocess.Popen[bytes]) -> int:
    """Wait for the end; the command decides what to do with Ctrl-C, which it gets too, and with SIGTERM."""
    before = signal.signal(signal.SIGTERM, lambda number, _: process.send_signal(number))
    try:
        while True:
            with contextlib.suppress(KeyboardInterrupt):
                status = process.wait()
                return status if status >= 0 else 128 - status
    finally:
        signal.signal(signal.SIGTERM, before)


def summary(trace: TraceFile) -> tuple[str, ...]:
    """What a recording holds, in words."""
    size_bytes = sum(rank_step.bytes for step in trace.steps for rank_step in step.ranks)
    ranks = [rank_step for step in trace.steps for rank_step in step.ranks]
    time_ns = sum(rank_step.before_ns + rank_step.synced_ns for rank_step in ranks)
    share = sum(rank_step.recording_ns for rank_step in ranks) / max(1, time_ns)
    text = (
        f"{trace.model}: {len(trace.steps)} steps of {trace.world_size} ranks, {trace.elements:,} elements "
        f"in {len(trace.tensors)} tensors and {len(trace.buckets)} buckets, {size_bytes:,} bytes"
    )
    return (
        text,
        f"recording took {share:.2f} × the time of these steps, which is in none of the recorded times",
        *trace.notes,
    )


def print_error(lines: Sequence[str], folder: str) -> None:
    """Say on stderr why there is no trace."""
    print(f"netfold capture: {folder} was not written", file=sys.stderr)
    for line in lines:
        print(f"  {line}", file=sys.stderr)


# What a launched training runs in each of its processes: records the first model that DDP wraps.
#
# The script is not changed: the constructor of `DistributedDataParallel` is wrapped when its module is
# imported. A process that never imports it pays nothing.


_MODULE = "torch.nn.parallel.distributed"


def install() -> None:
    """Wait for the import of DDP, if a launcher wants a recording."""
    settings = from_environment()
    if settings is not None:
        sys.meta_path.insert(0, _Finder(settings))


class _Finder(MetaPathFinder):
    """Finds DDP's module as usual, with a loader that wraps the constructor."""

    def __init__(self, settings: CaptureSettings) -> None:
        self._settings = settings

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module, once."""
        if fullname != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Wrapped(spec.loader, self._settings)
        return spec


class _Wrapped(Loader):
    """Loads DDP's module, and wraps its constructor."""

    def __init__(self, loader: Loader, settings: CaptureSettings) -> None:
        self._loader, self._settings = loader, settings

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """As usual, then wrap."""
        self._loader.exec_module(module)
        wrap(module.DistributedDataParallel, self._settings)


def wrap(ddp: Any, settings: CaptureSettings) -> None:
    """Let the constructor of DDP begin a recording of the first model."""
    constructor = ddp.__init__
    begun: list[Any] = []

    def recorded(self: Any, *arguments: Any, **options: Any) -> None:
        constructor(self, *arguments, **options)
        if begun:
            if len(begun) == 1:
                _say("the training wraps several models in DistributedDataParallel: the first is recorded")
            begun.append(None)
            return
        begun.append(None)
        _begin(self, settings)

    recorded.__wrapped__ = constructor  # type: ignore[attr-defined]  # for inspect.signature
    ddp.__init__ = recorded


def _begin(model: Any, settings: CaptureSettings) -> None:
    """Begin the recording, and end it with the process; what goes wrong does not stop the training."""
    from multiprocessing.util import Finalize  # also called where a child of multiprocessing ends

    from netfold.errors import NetfoldError
    from netfold.sim.capture.capture import begin

    try:
        recorder = begin(model, settings)
    except NetfoldError as error:
        _say(str(error))
        return

    def end() -> None:
        if (error_type := getattr(sys, "last_type", None)) is not None:  # an exception that nobody caught
            recorder.fail(f"the training ended with {error_type.__name__}: {sys.last_value}")
        try:
            recorder.finish()
        except NetfoldError as error:
            _say(str(error))

    Finalize(None, end, exitpriority=10)


def _say(text: str) -> None:
    print(f"netfold capture: {text}", file=sys.stderr, flush=True)
