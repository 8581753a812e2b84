"""The house: layers of imports, what a package holds, hints, pinned tools."""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from netfold.errors import did_you_mean, names_hint
from netfold.homomorphic.codec import codec_kinds
from netfold.kernels.processor import variables
from netfold.kinds import registered
from netfold.sim.collectives.collective import collectives
from netfold.sim.plan.host_profiles import host_profiles
from netfold.sim.workload import devices
from netfold.sim.workload.fusion import Fusion
from netfold.sim.workload.learning_rate import RateSchedule
from netfold.sim.workload.models.registry import classes
from netfold.sim.workload.optimizers import Optimizer
from netfold.switch.program import programs
from netfold.topologies.kind import Topology
from tests import ROOT
from tests.examples import nightly

FOLDERS = ("homomorphic", "sim", "switch", "topologies")
PACKAGES = ("netfold",)
TEXTS = {".py", ".md", ".yaml", ".toml", ".html", ".json", ".txt"}
LINES_MAX = 800
UNDONE = ("NotImplemented" + "Error", "TO" + "DO", "FIX" + "ME")  # not to find themselves here


def sources() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def texts() -> list[Path]:
    """Everything of the project that a person reads."""
    folders = (*PACKAGES, "scenarios", "tests", "docs")
    inside = itertools.chain.from_iterable((ROOT / folder).rglob("*") for folder in folders)
    return sorted(path for path in (*ROOT.iterdir(), *inside) if path.is_file() and path.suffix in TEXTS)


def lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines()


def test_files_are_not_long() -> None:
    assert len(sources()) > 50
    assert {str(path): len(lines(path)) for path in sources() if len(lines(path)) > LINES_MAX} == {}


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imported_by(path: Path, modules: set[str]) -> set[str]:
    """The files that a file imports, inside functions and for type checkers too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & modules or {str(node.module)}
    return found & modules - {module_of(path)}


@pytest.mark.slow
def test_no_file_is_imported_by_what_it_imports() -> None:
    modules = {module_of(path) for path in sources()}
    left = {module_of(path): imported_by(path, modules) for path in sources()}

    while free := {module for module, others in left.items() if not others & left.keys()}:
        left = {module: others for module, others in left.items() if module not in free}

    assert len(modules) > 200
    assert left == {}


def test_files_of_the_same_name_hold_the_same_kind_of_thing() -> None:
    """Kinds are named by users: a ring is a collective and a topology."""
    paths = defaultdict(set)
    for path in sources():
        paths[path.name].add(str(path.relative_to(ROOT / "netfold").parent))

    assert {name: found for name, found in paths.items() if len(found) > 1 and name != "__init__.py"} == {
        "registry.py": {"sim/collectives", "sim/workload/models"},
        "ring.py": {"sim/collectives/kinds", "topologies/kinds"},
        "tree.py": {"sim/collectives/kinds", "switch/programs"},
    }


def of_kinds() -> dict[str, str]:
    """The module of everything that has a file of its own, by kind."""
    made_by = {
        kind: spec.section if spec.is_between_hosts else getattr(spec.start, "func", spec.start)
        for kind, spec in collectives().items()
    }
    return {
        **{f"codec {kind}": codec.__module__ for kind, codec in codec_kinds().items()},
        **{f"collective {kind}": made.__module__ for kind, made in made_by.items()},
        **{f"model {kind}": model.__module__ for kind, model in classes().items()},
        **{f"program {kind}": spec.layout.__module__ for kind, spec in programs().items()},
        **{f"topology {kind}": topology.__module__ for kind, topology in registered(Topology).items()},
    }


def test_a_kind_stands_in_the_file_of_its_name() -> None:
    """Variants of a model share its file: `resnet18` and `resnet50` are in `resnet.py`."""
    found = of_kinds()
    stems = {label: module.rpartition(".")[2] for label, module in found.items()}
    assert len(found) > 50
    assert {
        label: stem for label, stem in stems.items() if not label.partition(" ")[2].startswith(stem)
    } == {}
    assert {
        label: stem
        for label, stem in stems.items()
        if not label.startswith("model") and label.partition(" ")[2] != stem
    } == {}


@pytest.mark.parametrize(
    ("family", "members"),
    [
        ("optimizers", tuple(registered(Optimizer).values())),
        ("learning_rate", tuple(registered(RateSchedule).values())),
        ("fusion", tuple(registered(Fusion).values())),
        ("devices", tuple(registered(devices.DeviceOption).values())),
        ("host_profiles", tuple(map(type, host_profiles().values()))),
    ],
)
def test_a_small_family_shares_a_file(family: str, members: Sequence[type]) -> None:
    assert len(members) > 2
    for member in members:
        assert member.__module__.rpartition(".")[2].startswith(family)


@pytest.mark.parametrize("folder", ["homomorphic/codecs", "topologies/kinds"])
def test_a_method_is_described_where_it_stands_or_in_the_contract(folder: str) -> None:
    """Ruff cannot see what a contract says of a method, `inspect.getdoc` can."""
    classes = {
        value
        for path in sorted((ROOT / "netfold" / folder).glob("*.py"))
        for value in vars(importlib.import_module(module_of(path))).values()
        if isinstance(value, type) and value.__module__ == module_of(path)
    }
    bare = {
        f"{owner.__name__}.{name}"
        for owner in classes
        for name, method in vars(owner).items()
        if not name.startswith("_") and (inspect.isfunction(method) or isinstance(method, property))
        if not (inspect.getdoc(method) or inspect.getdoc(getattr(owner, name)))
    }

    assert len(classes) > 10
    assert bare == set()


def test_nothing_is_left_undone() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {word}"
        for path in texts()
        for number, line in enumerate(lines(path), 1)
        for word in UNDONE
        if word in line
    ]
    assert found == []


@pytest.mark.parametrize("name", FOLDERS)
def test_the_names_at_the_top_are_folders(name: str) -> None:
    link = ROOT / name
    if link.is_file():
        pytest.skip("a checkout without symbolic links")
    assert sorted(path.name for path in link.iterdir()) == sorted(
        path.name for path in (ROOT / "netfold" / name).iterdir()
    )
    assert (link / "__init__.py").read_text("utf-8").startswith('"""')


def git(*arguments: str) -> str:
    """What git prints."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def without_links(folder: Path) -> None:
    """A checkout where links are files that hold their targets, as on Windows."""
    git("-c", "core.symlinks=false", "checkout-index", "--all", f"--prefix={folder}/")
    assert (folder / "sim").read_text("utf-8") == "netfold/sim"


def archive(folder: Path) -> None:
    """What people download."""
    git("archive", f"--output={folder}.tar", git("write-tree").strip())
    with tarfile.open(f"{folder}.tar") as packed:
        packed.extractall(folder, filter="data")


def installed(folder: Path) -> Path:
    """The Python of an environment in which the project of a folder is installed in place."""
    home = folder.with_name("environment")
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    libraries = next(home.glob("lib/python*/site-packages"))
    (libraries / "others.pth").write_text(f"{Path(pytest.__file__).parents[1]}\n")  # no index is needed
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--editable", str(folder))
    subprocess.run([sys.executable, "-m", "pip", "--python", str(python), "install", *options], check=True)
    return python


IMPORT_ALL = """
import pkgutil, sys, netfold
names = [module.name for module in pkgutil.walk_packages(netfold.__path__, "netfold.")]
for name in names:
    if not name.endswith("__main__") and ".site." not in name:
        __import__(name)
print(len(names), netfold.__file__)
"""


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no repository of git")
@pytest.mark.parametrize(
    ("made", "is_imported"),
    [
        pytest.param(without_links, True, marks=nightly),
        (archive, False),
        pytest.param(archive, True, marks=nightly),
    ],
)
def test_nothing_needs_the_links_at_the_top(
    tmp_path: Path, made: Callable[[Path], None], is_imported: bool
) -> None:
    """Installed in place, every module is imported; wheel and source have every file of the package once."""
    sources, wheels = (
        pytest.importorskip(f"hatchling.builders.{kind}", reason="comes with the extra `test`")
        for kind in ("sdist", "wheel")
    )
    folder = tmp_path / "project"
    try:
        git("write-tree")
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"git does not work in this repository: {error}")
    made(folder)
    files = git("ls-files", "netfold").splitlines()
    if is_imported:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        command = [installed(folder), "-c", IMPORT_ALL]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True
        )
        count, file = done.stdout.split()
        assert Path(file).parent == folder / "netfold"
        # Every file of Python is a module, but for the package itself, and for two that no package holds.
        assert int(count) == sum(name.endswith(".py") for name in files) - 3

    scenarios = git("ls-files", "scenarios").splitlines()
    (wheel,) = wheels.WheelBuilder(str(folder)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as packed:
        names = [name for name in packed.namelist() if ".dist-info/" not in name]
        packed.extractall(tmp_path / "unpacked")
    examples = [
        name.replace("scenarios", "netfold/examples", 1) for name in scenarios if "README" not in name
    ]
    assert sorted(names) == sorted([*files, *examples])
    assert examples_copied(tmp_path / "unpacked", tmp_path / "empty") == {
        "17-bring-your-own-model.yaml",
        "models/spirals.py",
        "schema.json",
    }
    (source,) = sources.SdistBuilder(str(folder)).build(directory=str(tmp_path), versions=["standard"])
    with tarfile.open(source) as unpacked:
        names = [name.partition("/")[2] for name in unpacked.getnames()]
    about = {"pyproject.toml", "README.md", "LICENSE", "PKG-INFO", ".gitignore"}
    assert sorted(set(names) - about) == sorted([*files, *scenarios, "CHANGELOG.md", "CITATION.cff"])


def examples_copied(packages: Path, folder: Path) -> set[str]:
    """The files that an installed netfold copies into an empty folder for an example."""
    folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    command = [sys.executable, "-m", "netfold", "examples", "17-bring-your-own-model"]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_nothing_is_imported_by_the_bare_name_of_a_folder() -> None:
    bare = re.compile(rf"\s*(from|import) ({'|'.join(FOLDERS)})\b")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for folder in ("netfold", "tests", "docs")
        for path in (ROOT / folder).rglob("*.py")
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if bare.match(line)
    ]

    assert found == []


HEAVY = ("numpy", "numba", "torch", "polars", "pydantic", "simpy", "matplotlib", "networkx", "rich")
IMPORTS = f"""
import os, sys, netfold
print([name for name in {HEAVY} if name in sys.modules], {{*netfold.__all__}} <= {{*dir(netfold)}})
print(netfold.testing.check_codec.__name__)
before = {{*os.environ}}
from netfold.sim.workload import devices, data_sets
from netfold.sim.workload.models.registry import model_kinds, model_named
assert all(model_named(kind).elements > 0 for kind in model_kinds())
print("torch" in sys.modules)
from netfold.sim.workload.workload_keys import Training
Training("ncf").workload(2, 1).gradients(0)
print("torch" in sys.modules, "torch._dynamo" in sys.modules)
import netfold.torch, numpy as np
netfold.fold("packed", np.ones((2, 100), np.float32))
print({{*os.environ}} - before & {{*{[*variables()]}}})
import netfold.commands.main, netfold.sim.run.run
print([name for name in sys.modules if name.partition(".")[0] in {FOLDERS}])
"""


@pytest.mark.slow
@pytest.mark.processes
def test_imports() -> None:
    """`import netfold` loads nothing else, `testing` needs no import, weights are counted without PyTorch and
    trained without its compiler, the hook pins no instructions, and no module has the bare name of a folder.
    """
    free = {name: value for name, value in os.environ.items() if name not in variables()}
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS], cwd=ROOT, env=free, capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines() == ["[] True", "check_codec", "False", "True False", "set()", "[]"]


# Pairs of classes that share five or more names of fields. A new one says a thing twice: let one have the
# other, or a base of both. Whoever parts a pair takes it out of here.
ALIKE = {
    # what is planned, what runs
    "JobPlan JobSections",
    # keys of a workload, which `study` takes as arguments
    "RandomValues SyntheticKeys",
    # options of models that happen to be called the same
    "BertQa Gpt",
    # records of results
    "CodecRecord RoundRecord",
    "Cell RoundRecord",
    "Note NoteRecord",
    "Records RunFolder",
    "RankStep _Times",
    # the engine's tables and what is put into them
    "Message Segment",
    "Schedule Step",
    # switches: what is asked for, what there is
    "Profile ProgramSpec",
}
ALIKE_FIELDS = 5


def fields_of(node: ast.ClassDef) -> set[str]:
    """Public fields that a class itself declares."""
    declared = {
        item.target.id
        for item in node.body
        if isinstance(item, ast.AnnAssign)
        and isinstance(item.target, ast.Name)
        and "ClassVar" not in ast.unparse(item.annotation)
    }
    return {name for name in declared if not name.startswith("_")}


def test_no_two_classes_have_the_same_fields() -> None:
    declared = [
        (node.name, fields_of(node))
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    alike = {
        " ".join(sorted((name, other)))
        for (name, fields), (other, others) in itertools.combinations(declared, 2)
        if len(fields & others) >= ALIKE_FIELDS
    }

    assert alike - ALIKE == set()
    assert ALIKE - alike == set()


def test_hints() -> None:
    names = ("plain", "tofino2")

    assert did_you_mean("tofino3", names) == "did you mean 'tofino2'? "
    assert did_you_mean("xyz", names) == ""
    assert names_hint("tofino3", names) == "did you mean 'tofino2'? known: plain, tofino2"
    assert names_hint("xyz", names, "allowed") == "allowed: plain, tofino2"
    assert names_hint("tofino3", names, "programs", most=1) == "did you mean 'tofino2'? programs: plain"


@pytest.mark.parametrize("name", ["Makefile", "README.md"])
def test_the_cpu_build_of_the_pinned_torch_is_named(name: str) -> None:
    pin = next(line for line in lines(ROOT / "constraints.txt") if line.startswith("torch=="))

    assert f"install {pin} --index-url https://download.pytorch.org/whl/cpu" in (ROOT / name).read_text()


def test_an_extra_that_is_named_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    read = [path.read_text("utf-8") for path in texts()]

    assert {"dask", "topohub"} < {name for text in read for name in re.findall(r"netfold\[(\w+)\]", text)}
    named = {name for text in read for name in re.findall(r"(?:netfold|'\.)\[(\w+)\]", text)}
    assert named <= project["optional-dependencies"].keys()


def test_the_citation_is_of_this_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = YAML(typ="safe").load(ROOT / "CITATION.cff")

    assert {key: citation[key] for key in ("title", "version", "license", "abstract")} == {
        "title": project["name"],
        "version": project["version"],
        "license": project["license"],
        "abstract": project["description"],
    }


def test_every_tool_that_judges_is_pinned() -> None:
    """Warnings are errors and formatting is a gate: another version may judge otherwise."""
    from packaging.requirements import Requirement

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    pins = {
        Requirement(line).name.lower(): Requirement(line)
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line and not line.startswith("#")
    }

    assert all(str(pin.specifier).startswith("==") for pin in pins.values())
    named = [Requirement(text) for name in ("test", "check", "site") for text in extras[name]]
    named.remove(Requirement("netfold[site]"))
    assert [one.name for one in named if one.name.lower() not in pins] == []
    for one in named:
        version = str(pins[one.name.lower()].specifier).removeprefix("==")
        assert one.specifier.contains(version), one
