"""What compiled code stands on: its cache, keyed draws, selection of the largest, threads."""

from __future__ import annotations

import ast
import ctypes
import decimal
import functools
import math
import multiprocessing
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numba import njit
from numba.core import event
from numpy.typing import NDArray

from netfold.kernels import bits, compile_progress, rng_streams
from netfold.kernels import bits as module
from netfold.kernels import compiled as cache
from netfold.kernels.bits import largest, popcount, same_bits, trailing_zeros
from netfold.kernels.compiled import VARIABLE, imported_by, in_parallel, inlined, kernel
from netfold.kernels.exp_log import LN2, expm1s, exps, log1ps, logs
from netfold.kernels.keyed_random import mix, mix_plain, splitmix64, splitmix64_plain
from netfold.sim.engine.engine_data import Fate
from netfold.sim.engine.memory_access import longs_at
from tests import ROOT
from tests.examples import examples, nightly, scaled

WITH_KERNELS = (
    "netfold.homomorphic.codecs.majority",
    "netfold.sim.engine.loop",
    "netfold.switch.programs.atp",
    "netfold.sim.workload.synthetic",
)


@functools.cache
def read(module: str) -> ast.Module | None:
    """The syntax tree of a module of netfold; None if there is no such module."""
    own = ROOT.joinpath(*module.split("."))
    for path in (own.with_suffix(".py"), own / "__init__.py"):
        if path.is_file():
            return ast.parse(path.read_text("utf-8"))
    return None


def closure(module: str) -> set[str]:
    """What Python's own parser finds that a module imports, directly or not."""
    found: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        tree = read(name) if name.startswith("netfold.") else None
        if name in found or tree is None:
            continue
        found.add(name)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                waiting += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            elif isinstance(node, ast.Import):
                waiting += [alias.name for alias in node.names]
    return found


@pytest.mark.parametrize("module", WITH_KERNELS)
def test_all_that_a_module_imports_counts(module: str) -> None:
    assert imported_by(module) == closure(module)


def test_only_what_depends_on_an_edit_is_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """An edit of `registers.py` moves the folder of the engine's loop, and not that of a codec."""
    before = {name: cache._hash.__wrapped__(name) for name in WITH_KERNELS}
    source = cache._source
    edit = {"netfold.switch.registers": "# an edit\n"}
    monkeypatch.setattr(cache, "_source", lambda name: source(name) + edit.get(name, ""))
    moved = {name for name in WITH_KERNELS if before[name] != cache._hash.__wrapped__(name)}

    assert "netfold.homomorphic.codecs.majority" not in moved
    assert "netfold.sim.engine.loop" in moved


def test_without_a_home_nothing_is_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("NETFOLD_CACHE", "NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cache.Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    cache._say_unkept.cache_clear()

    assert cache.folder_of(WITH_KERNELS[0]) is None
    assert capsys.readouterr().err.startswith("compiled kernels cannot be kept: no home; each process")


@pytest.mark.processes
def test_where_nothing_can_be_kept_kernels_compile_all_the_same() -> None:
    """It is said once, with what to do."""
    code = (
        "from netfold.kernels.keyed_random import mix, mix_plain\n"
        "from netfold.kernels.exp_log import exps\n"
        "import numpy as np\n"
        "print(int(mix(1, 2, 3)) == mix_plain(1, 2, 3), exps(np.zeros(2)).tolist())\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment | {"PYTHONPATH": str(ROOT), "NETFOLD_CACHE": "/proc/nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout == "True [1.0, 1.0]\n"
    (line,) = done.stderr.splitlines()
    assert line.startswith("compiled kernels cannot be kept: ")
    assert line.endswith("Set NETFOLD_CACHE to a folder that can be written")


@pytest.mark.processes
def test_code_that_is_kept_is_loaded_without_the_compiler() -> None:
    """What Numba needs only to compile is not imported, and a kernel that nobody uses is not made."""
    assert int(mix(1, 2, 3)) == mix_plain(1, 2, 3)  # its code is kept from here on
    code = (
        "import sys\n"
        "from netfold.kernels import keyed_random as keyed\n"
        "print(int(keyed.mix(1, 2, 3)) == keyed.mix_plain(1, 2, 3), 'numba.np.arraymath' in sys.modules)\n"
        "print(type(keyed.mix).__name__, type(keyed.splitmix64).__name__)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )

    assert done.stdout == "True False\nKernel _Deferred\n"


def half(number: int) -> int:
    return number >> 1


def halves(words: NDArray[np.int32], many: NDArray[np.int64], bits: NDArray[np.uint32]) -> int:
    return half(words[0]) + half(many[0]) + half(9) + half(bits[0])


def test_a_function_is_compiled_once_for_all_signed_integers_where_kernels_call_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Unsigned ones differ: a shift of −3 is −2, that of its 32 bits a large number."""
    monkeypatch.setattr(cache, "folder_of", lambda module: None)
    monkeypatch.setitem(globals(), "half", inlined(half))
    compiled_halves = kernel(halves)
    told: list[tuple[int, int]] = []
    with (
        event.install_recorder("numba:compile") as recorder,
        compile_progress.observed(lambda *both: told.append(both)),
    ):
        result = compiled_halves(np.array([-3], np.int32), np.array([7]), np.array([-3]).astype(np.uint32))

    assert result == -2 + 3 + 4 + (2**32 - 3 >> 1)
    compiled = [each.data["dispatcher"].py_func.__name__ for _, each in recorder.buffer if each.is_start]
    assert sorted(compiled) == ["half", "half", "halves"]
    (done, known), (_, known_then) = told
    assert known == known_then == compile_progress.counts()[1]
    assert done <= compile_progress.counts()[0] <= known
    assert half(-3) == -2  # from Python: a kernel of its own


@kernel
def quarter(number: int) -> int:
    return number >> 2


def test_a_kernel_waits_until_no_other_process_compiles_it() -> None:
    waits: list[str] = []
    with (
        compile_progress.elsewhere([f"{__name__}.half"], lambda: waits.append("other")),
        compile_progress.elsewhere(
            [f"{__name__}.{name}" for name in ("quarter", "counts")], lambda: waits.append("own")
        ),
    ):
        assert quarter(8) == quarter(11) == 2

    assert waits == ["own"]


def add_product(address: int, number: int, factor: int) -> None:
    longs_at(address, 1)[0] += number * factor


def test_a_handler_is_compiled_when_it_is_first_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "folder_of", lambda module: None)
    handlers = cache.Handlers({add_product: [1, 3]}, parameters=3)
    table = (ctypes.c_int64 * 4).from_address(handlers.address)
    before, total = list(table), np.zeros(1, np.int64)

    def call(number: int, *arguments: int) -> None:
        ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(table[number])(total.ctypes.data, *arguments)

    with monkeypatch.context() as interrupted:
        interrupted.setattr(cache, "address_of", mock.Mock(side_effect=KeyboardInterrupt))
        call(3, 5, 7)
    assert (total[0], list(table)) == (0, before)
    with pytest.raises(KeyboardInterrupt):
        handlers.raise_failure()
    handlers.raise_failure()  # it was told

    call(3, 5, 7)
    assert total[0] == 35
    assert table[1] == table[3] not in before
    call(1, -2, 6)
    assert total[0] == 23
    compiled = list(table)
    handlers.compile(1)  # once more would be another piece of memory for each network
    assert list(table) == compiled


@nightly
@pytest.mark.processes
def test_the_first_run_compiles_each_function_once(tmp_path: Path) -> None:
    """Only hashes and estimates of few kinds of integers are compiled for several."""
    code = (
        "import collections, sys; from numba.core import event\n"
        "from netfold.commands.main import main\n"
        "with event.install_recorder('numba:compile') as recorder:\n"
        "    try: main()\n"
        "    except SystemExit: pass\n"
        "functions = [each.data['dispatcher'].py_func for _, each in recorder.buffer if each.is_start]\n"
        "names = [f'{each.__module__}.{each.__name__}' for each in functions]\n"
        "print(*(name for name in names if name.startswith('netfold')), file=sys.stderr)\n"
    )
    scenario = tmp_path / "mine.yaml"
    scenario.write_text(
        "{name: mine, topology: {kind: star, hosts: 4, rate: 25Gbps}, workers: 4, "
        "workload: {kind: synthetic, elements: 10000}, collective: {kind: in_network}, "
        "variants: [{name: dense, codec: {kind: fixed_point}}, {name: sparse, codec: {kind: lossless}}]}"
    )
    command = [sys.executable, "-c", code, "run", str(scenario), "--no-report", "--out", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "NETFOLD_CACHE": str(tmp_path / "cache")}
    environment["NETFOLD_THREADS"] = "1"  # no second process compiles
    environment.pop("NUMBA_CACHE_DIR", None)

    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)

    names = done.stderr.splitlines()[-1].split()
    assert "netfold.sim.engine.loop.run_until" in names
    assert len(names) < 260
    assert len(names) - len(set(names)) < 30
    assert sum(path.stat().st_size for path in (tmp_path / "cache").rglob("*") if path.is_file()) < 60e6


CONTEXT = decimal.Context(prec=60, Emax=10**6, Emin=-(10**6))
SMALLEST = math.ulp(0.0)
RANDOM = np.random.Generator(np.random.PCG64(23))
COUNT = scaled(800)
EXPONENTS = np.concatenate(
    [
        RANDOM.uniform(-745, 709.7, COUNT),
        RANDOM.uniform(-1, 1, COUNT),
        RANDOM.normal(size=COUNT) * 2.0 ** RANDOM.integers(-40, 3, COUNT),
        np.array([0.0, -0.0, LN2, -LN2, LN2 / 2, -LN2 / 2, 1.0, -1.0, 709.782712893384, -708.4, -745.13]),
    ]
)
POSITIVE = np.concatenate(
    [
        np.exp2(RANDOM.uniform(-1074, 1023.9, COUNT)),
        RANDOM.uniform(0.5, 2, COUNT),
        1 + RANDOM.normal(size=COUNT) * 2.0 ** RANDOM.integers(-52, -2, COUNT),
        np.array([SMALLEST, 2.0**-1022, 1.0, 0.5, 2.0, math.sqrt(0.5), math.sqrt(2), 1.7976931348623157e308]),
    ]
)
SMALL = np.concatenate(
    [-RANDOM.uniform(0, 1, COUNT), -(2.0 ** -RANDOM.uniform(1, 60, COUNT)), np.array([0.5, 1.0])]
)


def worst(found: np.ndarray, values: np.ndarray, exact: Callable[[Decimal], Decimal]) -> float:
    """The largest error in units of the last place of the exact result."""
    errors = []
    for value, own in zip(values.tolist(), found.tolist(), strict=True):
        right = exact(Decimal(value))
        unit = max(math.ulp(float(right)), SMALLEST)
        errors.append(abs(float((Decimal(own) - right) / Decimal(unit))))
    return max(errors)


@pytest.mark.parametrize(
    ("function", "values", "exact", "units"),
    [
        (exps, EXPONENTS, lambda x: x.exp(CONTEXT), 1),
        (logs, POSITIVE, lambda x: x.ln(CONTEXT), 1),
        (expm1s, SMALL, lambda x: CONTEXT.subtract(x.exp(CONTEXT), Decimal(1)), 4),
        (log1ps, SMALL[SMALL > -1], lambda x: CONTEXT.add(Decimal(1), x).ln(CONTEXT), 4),
    ],
    ids=["exp", "log", "expm1", "log1p"],
)
def test_errors_are_below_units_of_the_last_place(
    function: Callable[[np.ndarray], np.ndarray],
    values: np.ndarray,
    exact: Callable[[Decimal], Decimal],
    units: int,
) -> None:
    assert worst(function(values), values, exact) < units


def test_values_that_are_no_numbers_or_beyond_them() -> None:
    assert exps(np.array([np.inf, 709.79, -np.inf, -745.2, 0.0])).tolist() == [np.inf, np.inf, 0.0, 0.0, 1.0]
    assert logs(np.array([np.inf, 0.0, -0.0, 1.0])).tolist() == [np.inf, -np.inf, -np.inf, 0.0]
    assert expm1s(np.array([-800.0, 0.0])).tolist() == [-1.0, 0.0]
    assert log1ps(np.array([-1.0, 0.0])).tolist() == [-np.inf, 0.0]
    assert np.isnan(exps(np.array([np.nan]))).all()
    assert np.isnan(logs(np.array([np.nan, -1.0, -np.inf]))).all()


@pytest.mark.parametrize("factor", [1.0, LN2, -3.5])
def test_a_float32_is_rounded_once(factor: float) -> None:
    values = RANDOM.uniform(-8, 8, (7, 50)).astype(np.float32)

    found = exps(values, factor)

    assert found.dtype == np.float32
    assert found.shape == values.shape
    assert found.tolist() == exps(values.astype(np.float64) * factor).astype(np.float32).tolist()


def test_powers_of_two_are_exact_in_float32() -> None:
    exponents = np.arange(-126, 128, dtype=np.float32)

    assert exps(exponents, LN2).tolist() == (2.0 ** exponents.astype(np.float64)).tolist()


int64s = st.integers(-(2**63), 2**63 - 1)


@njit
def mix_of_three_types(seed: int, small: np.int32, large: np.uint64) -> np.uint64:
    return mix(seed, small, large, 3)


def test_splitmix64_gives_the_published_sequence() -> None:
    """First outputs of the reference generator with seed 1234567; it adds the golden ratio per step."""
    states = [1234567 + step * 0x9E3779B97F4A7C15 for step in range(3)]

    assert [splitmix64_plain(state) for state in states] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


@given(seed=int64s, first=int64s, second=int64s)
def test_compiled_and_plain_agree(seed: int, first: int, second: int) -> None:
    assert splitmix64_plain(seed) == splitmix64(seed)
    assert mix_plain(seed, first) == mix(seed, first)
    assert mix_plain(seed, first, second) == mix(seed, first, second)


@given(seed=int64s, small=st.integers(-(2**31), 2**31 - 1), large=st.integers(0, 2**64 - 1))
def test_values_may_be_of_different_types(seed: int, small: int, large: int) -> None:
    assert mix_plain(seed, small, large, 3) == mix_of_three_types(seed, np.int32(small), np.uint64(large))


def test_order_and_place_of_values_matter() -> None:
    keys = {mix_plain(1, *values) for values in [(2, 3), (3, 2), (2,), (2, 3, 0), (0, 2, 3), (-2, 3)]}

    assert len(keys) == 6


# Streams of keyed numbers: different where they share a key, and named at every draw.

DRAWING = {"mix", "mix_plain", "packet_key", "to_point"}
SOURCES = {path: path.read_text("utf-8") for path in (ROOT / "netfold").rglob("*.py")}


def test_streams_that_share_a_key_differ() -> None:
    numbers = {name: value for name, value in vars(rng_streams).items() if name.isupper()}
    del numbers["RING_FLOW_SEED"], numbers["FATE"]
    used = [*numbers.values(), *(rng_streams.FATE + fate for fate in Fate)]

    assert len(set(used)) == len(used)


def test_every_stream_has_a_name_and_is_used() -> None:
    used, bare = set(), []
    for path, source in SOURCES.items():
        if not any(word in source for word in ("rng_streams", *DRAWING)):
            continue
        for node in ast.walk(ast.parse(source)):
            match node:
                case ast.Attribute(value=ast.Name("rng_streams")):
                    used.add(node.attr)
                case ast.Call(func=ast.Name(name)) if name in DRAWING and any(map(is_bare, node.args)):
                    bare.append(f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}")

    assert bare == []
    assert used == {name for name in vars(rng_streams) if name.isupper()}


def is_bare(argument: ast.expr) -> bool:
    """Whether an argument is an integer, or a sum with one."""
    if isinstance(argument, ast.BinOp) and isinstance(argument.op, ast.Add):
        return is_bare(argument.left) or is_bare(argument.right)
    return isinstance(argument, ast.Constant) and isinstance(argument.value, int)


# Bits of a word against Python's own count.


@kernel
def counts(word: np.uint64) -> tuple[np.uint64, np.uint64]:
    return popcount(word), trailing_zeros(word)


@given(word=st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 63).map(lambda bit: 1 << bit)))
def test_bits_of_a_word_are_counted(word: int) -> None:
    trailing = 64 if word == 0 else (word & -word).bit_length() - 1

    assert (word.bit_count(), trailing) == counts(np.uint64(word))


# Arrays are the same where their bytes are.

WORDS = st.lists(st.sampled_from([0.0, -0.0, 1.0, np.nan, np.inf]), max_size=12)


@given(WORDS, WORDS)
@example([1.0] * 12, [1.0] * 11 + [-0.0])
@example([1.0], [1.0] * 8)
def test_arrays_are_the_same_where_their_bytes_are(one: list[float], other: list[float]) -> None:
    left, right = np.array(one, np.float32), np.array(other, np.float32)
    before = bits._SLICE
    bits._SLICE = 4
    try:
        assert same_bits(left, right) == (left.tobytes() == right.tobytes())
        assert same_bits(left, left.copy())
    finally:
        bits._SLICE = before


def test_views_of_the_same_memory_are_the_same_if_they_are_as_long() -> None:
    whole = np.arange(8, dtype=np.int32)

    assert same_bits(whole, whole[:])
    assert not same_bits(whole, whole[:7])
    assert not same_bits(whole[::2], whole[:4])


SAMPLED = 270_000  # elements: enough for a sample


def by_sorting(values: np.ndarray, count: int) -> list[int]:
    """Stable, so equal magnitudes stay in order; NaN is above infinity."""
    magnitudes = np.abs(values).view(np.int32)
    return sorted(np.argsort(-magnitudes.astype(np.int64), kind="stable")[:count].tolist())


@examples(80)
@given(values=arrays(np.float32, st.integers(1, 60)), data=st.data())
def test_any_few_values(values: np.ndarray, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, values.size))

    found = largest(values, count)

    assert found.dtype == np.int64
    assert found.tolist() == by_sorting(values, count)


def drawn(kind: str, size: int = SAMPLED) -> np.ndarray:
    random = np.random.default_rng(1)
    values = random.standard_normal(size, np.float32)
    if kind == "ties":
        return np.round(values)
    if kind == "sparse":
        return np.where(random.random(size) < 0.02, values, np.float32(-0.0))
    if kind == "ascending":
        return np.sort(values)
    if kind == "equal":
        return np.full(size, -1, np.float32)
    if kind == "not finite":
        values[::1000], values[5::1000] = np.nan, -np.inf
    if kind == "strided":  # the large ones at equal distances
        values[::64] *= 100
    return values


KINDS = ("normal", "ties", "sparse", "ascending", "equal", "not finite", "strided")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [1 / SAMPLED, 0.001, 0.3, 1.0])
def test_many_values(kind: str, share: float) -> None:
    values = drawn(kind)
    count = round(share * SAMPLED)

    assert largest(values, count).tolist() == by_sorting(values, count)


@pytest.mark.parametrize("left_over", [1, 31, 32, 63])
def test_the_last_elements_count(left_over: int) -> None:
    values = drawn("normal", SAMPLED // 64 * 64 + left_over)
    values[-1] = 1000

    assert largest(values, 300).tolist() == by_sorting(values, 300)


def test_a_view_with_gaps() -> None:
    values = drawn("normal")[::2]

    assert largest(values, 100).tolist() == by_sorting(np.ascontiguousarray(values), 100)


@pytest.mark.parametrize("bound", [0.0, 4.0, 100.0])
def test_a_sample_that_misleads_costs_time_only(bound: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below all values there is no room for what is collected; above the wanted ones too few are."""
    monkeypatch.setattr(module, "_draw", lambda bits, sample: sample.fill(np.float32(bound).view(np.int32)))
    values = drawn("normal")

    assert largest(values, 3000).tolist() == by_sorting(values, 3000)


def test_a_sample_finds_few_more_than_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What makes it fast: the selection among candidates sees 1.2 times as many as are wanted."""
    seen = []
    chosen = module._choose
    monkeypatch.setattr(
        module, "_choose", lambda magnitudes, count: seen.append(magnitudes.size) or chosen(magnitudes, count)
    )
    largest(drawn("normal"), 3000)

    (candidates,) = seen
    assert 3000 <= candidates < 1.5 * 3000


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "3")


def squares(count: int) -> list[int]:
    results = np.zeros(count, np.int64)

    def work(first: int, last: int) -> None:
        results[first:last] += np.arange(first, last) ** 2

    in_parallel(work, count)
    return results.tolist()


@given(count=st.integers(0, 50), threads=st.integers(1, 6))
@examples(40)
def test_every_item_is_worked_on_once_in_ranges_of_equal_size(count: int, threads: int) -> None:
    ranges = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(threads))
        in_parallel(lambda first, last: ranges.append((first, last)), count)
        assert squares(count) == [i * i for i in range(count)]

    assert [i for first, last in sorted(ranges) for i in range(first, last)] == list(range(count))
    assert len(ranges) == min(threads, count)
    sizes = [last - first for first, last in ranges]
    assert max(sizes, default=0) - min(sizes, default=0) <= 1


@pytest.mark.usefixtures("threads")
def test_parts_run_at_the_same_time_on_threads_that_stay() -> None:
    together = threading.Barrier(3, timeout=20)  # breaks unless three parts wait at once
    seen: list[set[str]] = []

    def work(first: int, last: int) -> None:
        together.wait()
        seen[-1].add(threading.current_thread().name)

    for _ in range(4):
        seen.append(set())
        in_parallel(work, 3)

    assert [len(names) for names in seen] == [3, 3, 3, 3]
    assert len(set.union(*seen)) == 3


def test_one_thread_needs_no_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    calls = []
    in_parallel(lambda *ends: calls.append((ends, threading.current_thread())), 7)

    assert calls == [((0, 7), threading.main_thread())]


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize(("failing", "expected"), [({0, 2}, 0), ({1, 2}, 1), ({2}, 2)])
def test_the_first_error_is_passed_on_when_all_parts_have_ended(failing: set[int], expected: int) -> None:
    ended = []

    def work(first: int, last: int) -> None:
        ended.append(first)
        if first in failing:
            raise KeyError(first)

    with pytest.raises(KeyError) as raised:
        in_parallel(work, 3)

    assert raised.value.args == (expected,)
    assert sorted(ended) == [0, 1, 2]
    assert squares(5) == [0, 1, 4, 9, 16]


@pytest.mark.usefixtures("threads")
def test_a_part_may_share_work_itself() -> None:
    results = []
    in_parallel(lambda first, last: results.append((first, squares(4))), 3)

    assert sorted(results) == [(part, [0, 1, 4, 9]) for part in range(3)]


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.usefixtures("threads")
def test_a_forked_process_has_threads_of_its_own() -> None:
    assert squares(6) == [0, 1, 4, 9, 16, 25]  # the pool exists
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks with threads
        child = context.Process(target=lambda: sender.send(squares(6)))
        child.start()

    assert receiver.poll(30)
    assert receiver.recv() == [0, 1, 4, 9, 16, 25]
    child.join(30)
    assert child.exitcode == 0
    assert squares(6) == [0, 1, 4, 9, 16, 25]


@pytest.mark.parametrize("text", ["0", "-1", "two", "", "1.5", "²"])
def test_a_number_of_threads_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(VARIABLE, text)

    with pytest.raises(ValueError) as refused:
        in_parallel(lambda first, last: None, 5)

    assert str(refused.value) == (
        f"NETFOLD_THREADS is {text!r}: must be a whole number of at least 1; "
        f"leave it out for one thread on each of {os.cpu_count()} cores"
    )
