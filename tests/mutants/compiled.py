"""Which functions are compiled, and which values compiled code has frozen."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from pathlib import Path

COMPILED_BY = {"kernel", "inlined"}  # decorators of `kernels.compiled`
RUN_BY_THE_COMPILER = {"intrinsic"}
MAY_BE_COMPILED = re.compile(r"@(?:kernel|inlined|intrinsic)\b")

Definition = tuple[str, str]  # a file, and a name that it defines outside of functions
Frozen = Collection[Definition]


@lru_cache(maxsize=1)  # many faults are put into a tree one after the other
def compiled_functions(tree: ast.Module) -> set[ast.FunctionDef]:
    """Functions that are compiled: by their decorators, or as keys of what is given to `Handlers`."""
    by_address = {
        key.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Handlers"
        if node.args and isinstance(node.args[0], ast.Dict)
        for key in node.args[0].keys
        if isinstance(key, ast.Name)
    }
    return {
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and (_decorators(node) & COMPILED_BY or node.name in by_address)
    }


def is_run_by_the_compiler(function: ast.FunctionDef) -> bool:
    """Whether it, or a function within it, tells the compiler what to emit."""
    return any(
        isinstance(node, ast.FunctionDef) and _decorators(node) & RUN_BY_THE_COMPILER
        for node in ast.walk(function)
    )


class Package:
    """The files of the package, by what they define and import; each is parsed when it is first asked for."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts
        self._parsed: dict[str, _File] = {}
        self._by_module = {module_of(file): file for file in texts}

    def frozen(self) -> set[Definition]:
        """What compiled code keeps from when it was compiled: constants and classes, and what makes them.

        A switch in one of them would be read too early.
        """
        frozen: set[Definition] = set()
        waiting: list[tuple[str, ast.AST, bool]] = []
        for file, text in self._texts.items():
            if MAY_BE_COMPILED.search(text):
                tree = self._file(file).tree
                compiled = compiled_functions(tree)
                for part in tree.body:
                    if isinstance(part, ast.FunctionDef) and (
                        part in compiled or is_run_by_the_compiler(part)
                    ):
                        waiting += [(file, statement, True) for statement in part.body]
        while waiting:
            file, piece, is_compiled = waiting.pop()
            for definition in self._used(piece, file):
                node = self._file(definition[0]).defined[definition[1]]
                if definition in frozen or (is_compiled and isinstance(node, ast.FunctionDef)):
                    continue  # a compiled function that another one calls reads its switch when it runs
                frozen.add(definition)
                waiting.append((definition[0], node, False))
        return frozen

    def _file(self, file: str) -> _File:
        if file not in self._parsed:
            self._parsed[file] = _File(ast.parse(self._texts[file]))
        return self._parsed[file]

    def _used(self, tree: ast.AST, file: str) -> set[Definition]:
        """Definitions of the package that a piece of a file uses by name."""
        used: set[Definition | None] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                used.add(self._definition(file, node.id))
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                module = ".".join(self._file(file).imported.get(node.value.id, ("", "")))
                if module in self._by_module:
                    used.add(self._definition(self._by_module[module], node.attr))
        return {definition for definition in used if definition is not None}

    def _definition(self, file: str, name: str) -> Definition | None:
        while name not in self._file(file).defined:
            module, name = self._file(file).imported.get(name, ("", ""))
            if self._by_module.get(module, file) == file:
                return None  # of another package, or a module of this one
            file = self._by_module[module]
        return file, name


def module_of(file: str) -> str:
    """The name by which a file of the package is imported."""
    parts = list(Path(file.removeprefix("netfold/")).with_suffix("").parts)
    return ".".join(["netfold", *(parts[:-1] if parts[-1] == "__init__" else parts)])


class _File:
    """What a file defines and imports."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.defined: dict[str, ast.AST] = {}
        self.imported: dict[str, tuple[str, str]] = {}  # module and name, by the name that it has here
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                self.defined[node.name] = node
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    for name in ast.walk(target):
                        if isinstance(name, ast.Name):
                            self.defined[name.id] = node
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    self.imported[alias.asname or alias.name] = (node.module, alias.name)


def _decorators(function: ast.FunctionDef) -> set[str]:
    return {node.id for node in function.decorator_list if isinstance(node, ast.Name)}
