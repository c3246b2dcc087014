"""What importing the package costs, prints and leaves behind, and which module may import which library.

The order of the package's own modules is a contract in ``pyproject.toml`` that ``lint-imports`` checks.
"""

import ast
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import routepack_opt

PACKAGE = Path(routepack_opt.__file__).parent
HOMES = {
    "torch": ("runtime", "integrations"),
    "megatron": ("runtime",),
    "transformers": ("runtime",),
    "safetensors": ("runtime",),
    "ray": ("integrations.ray",),
    "ortools": ("models", "solvers"),
    "pyomo": ("models", "solvers"),
    "highspy": ("models", "solvers"),
    "matplotlib": ("plotting",),
    "jinja2": ("report",),
    "typer": ("cli",),
    "rich": ("cli",),
}
HEAVY = {*HOMES, "numba", "scipy", "pandas"}


def _run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter that sees the same package."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=PACKAGE.parent, timeout=120)


def _modules() -> dict[str, Path]:
    """Every module of the package by its name inside it; the package itself is ''."""
    paths = {path.relative_to(PACKAGE).with_suffix(""): path for path in sorted(PACKAGE.rglob("*.py"))}
    return {".".join(p.parts).removesuffix("__init__").removesuffix("."): path for p, path in paths.items()}


def _imports(node: ast.AST, in_function: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield (library, imported inside a function) for every absolute import below a node."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from ((alias.name.split(".")[0], in_function) for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.level == 0 and child.module:
            yield child.module.split(".")[0], in_function
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from _imports(child, in_function or is_function)


def _is_under(module: str, home: str) -> bool:
    return module == home or module.startswith(f"{home}.")


def test_import_is_light_and_silent() -> None:
    done = _run("import routepack_opt")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = _run("import sys, routepack_opt; print('\\n'.join(sys.modules))")
    assert HEAVY.isdisjoint(done.stdout.split())


def test_public_names_need_no_optional_library() -> None:
    done = _run("import sys; from routepack_opt import *; print('\\n'.join(sys.modules))")
    assert done.returncode == 0, done.stderr
    assert set(HOMES).isdisjoint(done.stdout.split())


@pytest.mark.parametrize("module", _modules())
def test_third_party_libraries_stay_in_their_homes(module: str) -> None:
    for library, _ in _imports(ast.parse(_modules()[module].read_text())):
        homes = HOMES.get(library)
        if homes is not None:
            assert any(_is_under(module, home) for home in homes), f"{library} belongs in {homes}"


@pytest.mark.parametrize("module", _modules())
def test_numba_loads_only_with_kernels(module: str) -> None:
    if "_kernels" in module.split("."):
        return
    for library, in_function in _imports(ast.parse(_modules()[module].read_text())):
        assert library != "numba" or in_function, "import numba in a function or under _kernels"


def test_public_names_survive_every_submodule() -> None:
    names = [f"routepack_opt.{module}" for module in _modules() if module]
    random.Random(20_26).shuffle(names)
    code = """
import importlib, json, sys
import routepack_opt
missing = {}
for name in json.loads(sys.argv[1]):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing[name] = error.name
wrong = []
for name, home in routepack_opt._PUBLIC.items():
    owner = importlib.import_module(f"routepack_opt.{home}")
    if getattr(routepack_opt, name) is not getattr(owner, name):
        wrong.append(name)
print(json.dumps([missing, wrong]))
"""
    done = _run(code, json.dumps(names))
    assert done.returncode == 0, done.stderr
    missing, wrong = json.loads(done.stdout)
    assert wrong == []
    assert not [name for name, library in missing.items() if library.startswith("routepack_opt")]


def test_no_submodule_has_the_name_of_a_public_one() -> None:
    assert not set(routepack_opt.__all__) & {module.split(".")[0] for module in _modules()}


def test_public_names_are_the_ones_type_checkers_see() -> None:
    tree = ast.parse(_modules()[""].read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }
    assert typed == routepack_opt._PUBLIC


def test_dir_lists_public_names_and_unknown_ones_are_refused() -> None:
    assert set(routepack_opt.__all__) <= set(dir(routepack_opt))
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = routepack_opt.no_such_name
