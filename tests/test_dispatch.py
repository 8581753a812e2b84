"""No result depends on what NumPy, BLAS or the C library choose by the processor: a look through the source.

NumPy's exponentials, logarithms, powers and trigonometric functions have versions for AVX2 and AVX-512
that differ in the last bit, BLAS adds products in an order that depends on the processor, and a sort that
is not stable orders ties by its width. What is found is replaced (`kernels/exp_log.py`, a
loop, integers, kind="stable"), or listed here with the reason why no result depends on it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests import ROOT
from tests.test_house import sources

OF_NUMPY = {
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "logaddexp", "power", "float_power", "cbrt"),
    *[
        "sin",
        "cos",
        "tan",
        "arcsin",
        "arccos",
        "arctan",
        "arctan2",
        "sinh",
        "cosh",
        "tanh",
        "arcsinh",
        "hypot",
    ],
    *("dot", "matmul", "einsum", "inner", "vdot", "vecdot", "tensordot", "linalg", "convolve", "correlate"),
    *("cov", "corrcoef", "polyfit", "polyval", "fft"),
}
OF_MATH = OF_NUMPY | {"pow", "atan", "atan2", "acos", "asin", "erf", "erfc", "gamma", "lgamma"}
DRAWN = {
    *("normal", "standard_normal", "lognormal", "gamma", "standard_gamma"),
    *("exponential", "beta", "chisquare"),
}
TRAFFIC = "netfold/sim/collectives/in_network/aggregation_tree.py"

SCALAR = "a C library's function of one number, which has one version for all processors with AVX2"
NUMPYS_BITS = f"draws NumPy's own numbers; {SCALAR}"
TRIED = "gradients on which a codec is tried: any will do"
PYTORCHS = "of PyTorch, which is pinned"
WHOLE = "whole numbers, exact in any order"
DIFFERENT = "the numbers differ, and the chosen ones are sorted or marked: a set"
PROVEN = "a whole number that is proven to be the least, whatever the way to it"
ALLOWED = {
    ("netfold/homomorphic/codecs/auto.py", "in_block @ digits_per_member"): WHOLE,
    ("netfold/homomorphic/codecs/auto.py", "members @ digits_per_member"): WHOLE,
    ("netfold/homomorphic/codecs/auto.py", "live @ digits_per_member"): WHOLE,
    ("netfold/homomorphic/codecs/bird_rows.py", "self.base ** np.arange(self.count, dtype=np.int64)"): WHOLE,
    ("netfold/homomorphic/codecs/bird_rows.py", "base ** count"): WHOLE,
    ("netfold/homomorphic/codecs/bird_rows.py", "sums.astype(np.int64) @ self._powers"): WHOLE,
    ("netfold/homomorphic/codecs/bird_rows.py", "np.argpartition(draws, count - 1)"): DIFFERENT,
    ("netfold/homomorphic/codecs/random_k.py", "np.argpartition(draws, count - 1)"): DIFFERENT,
    ("netfold/sim/checks/merged_signs.py", "workers ** 3"): WHOLE,
    (TRAFFIC, "np.maximum(nearest - self._to_racks[others], 0) @ self._workers"): WHOLE,
    (TRAFFIC, "nearest @ self._workers"): WHOLE,
    (TRAFFIC, "self._to_racks @ self._workers"): WHOLE,
    (
        "netfold/kernels/processor.py",
        "probe @ right.repeat(1, _PROBE_SIZE)",
    ): "asks PyTorch how it multiplies",
    ("netfold/topologies/exact_bisection.py", "import scipy.optimize"): PROVEN,
    (
        "netfold/topologies/exact_bisection.py",
        "from scipy.optimize import Bounds, LinearConstraint, milp",
    ): PROVEN,
    ("netfold/topologies/exact_bisection.py", "from scipy.sparse import coo_array"): PROVEN,
    ("netfold/sim/workload/device_rooflines.py", "generator.gamma(1 / variance, variance)"): SCALAR,
    ("netfold/sim/workload/device_rooflines.py", "generator.standard_normal()"): SCALAR,
    ("netfold/sim/workload/synthetic.py", "math.exp"): NUMPYS_BITS,
    ("netfold/sim/workload/models/text.py", "queries @ keys.transpose(2, 3)"): PYTORCHS,
    ("netfold/sim/workload/models/text.py", "weights @ values"): PYTORCHS,
    ("netfold/testing.py", "random.standard_normal(elements)"): TRIED,
    ("netfold/testing.py", "random.standard_normal((1 + workers, _ELEMENTS))"): TRIED,
    ("netfold/sim/workload/synthetic.py", "np.log1p"): NUMPYS_BITS,
    ("netfold/sim/workload/data_readers.py", "weights @ small"): WHOLE,
    ("netfold/sim/workload/data_readers.py", "weights @ small @ weights.T"): WHOLE,
    ("netfold/sim/workload/learning_rate.py", "self.by ** (step // self.every)"): SCALAR,
    ("netfold/topologies/kinds/bcube.py", "self.n ** (self.k + 1)"): WHOLE,
    ("netfold/topologies/kinds/bcube.py", "self.n ** level"): WHOLE,
    ("netfold/topologies/kinds/bcube.py", "self.n ** self.k"): WHOLE,
}


def numpy_or_blas(node: ast.AST) -> bool:
    """Whether an expression may be computed by code that is chosen by the processor."""
    match node:
        case ast.Attribute(value=ast.Name(id="np"), attr=name):
            return name in OF_NUMPY
        case ast.Call(func=ast.Attribute(attr="argsort" | "argpartition" | "dot"), keywords=keys):
            return not any(key.arg == "kind" and ast.unparse(key.value) == "'stable'" for key in keys)
        case ast.Call(func=ast.Attribute(attr=name)):
            return name in DRAWN
        case ast.BinOp(op=ast.MatMult()) | ast.AugAssign(op=ast.MatMult()):
            return True
        case ast.BinOp(op=ast.Pow(), left=base, right=exponent):
            return not isinstance(base, ast.Constant) and ast.unparse(exponent) != "2"
        case ast.Import(names=names):
            return any(name.name.startswith("scipy") for name in names)
        case ast.ImportFrom(module=module):
            return (module or "").startswith("scipy")
    return False


def compiled(tree: ast.AST) -> Iterator[ast.AST]:
    """All expressions of functions that Numba compiles; it calls the C library for those of `math`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            names = {ast.unparse(decorator) for decorator in node.decorator_list}
            if names & {"kernel", "inlined"}:
                yield from ast.walk(node)


def suspects(source: str) -> set[str]:
    """What of a source may be computed by code that is chosen by the processor."""
    tree = ast.parse(source)
    found = {ast.unparse(node) for node in ast.walk(tree) if numpy_or_blas(node)}
    return found | {
        ast.unparse(node)
        for node in compiled(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "math" and node.attr in OF_MATH
    }


@pytest.mark.slow
def test_nothing_that_reaches_a_result_is_chosen_by_the_processor() -> None:
    found = {
        (path.relative_to(ROOT).as_posix(), text)
        for path in sources()
        for text in suspects(path.read_text("utf-8"))
    }

    assert found == set(ALLOWED)


def test_the_look_sees_something() -> None:
    source = (
        "import scipy\na = np.exp(x)\nb = rows @ rows\nc = x ** gamma\nd = np.linalg.norm(x)\n"
        "e = x.argsort()\nf = x.dot(y)\ng = generator.lognormal()\n"
        "@kernel\ndef h(x):\n    return math.log(x)\n"
    )
    good = (
        "a = np.argsort(x, kind='stable') + x ** 2 + 2.0 ** x + np.sqrt(x) + math.log(2)\n"
        "@kernel\ndef h(x):\n    return math.sqrt(x) + exp(x)\n"
    )

    assert suspects(source) == {
        *("import scipy", "np.exp", "rows @ rows", "x ** gamma", "np.linalg", "x.argsort()", "x.dot(y)"),
        *("generator.lognormal()", "math.log"),
    }
    assert suspects(good) == set()
