"""The trainers' own files, loaded one by one from a folder of checkouts or unpacked wheels.

``ROUTEPACK_TRAINERS`` names the folder; it holds ``slime/slime/...``, ``verl/verl/...`` and so on, in the
versions that the adapters name as `READ_FROM`. What a file imports from its own package without being asked
for here is a stub, so that no trainer needs its GPU stack. Without the folder these tests are skipped.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock

import pytest


class Stub(ModuleType):
    """A module that has every name; those of real submodules are the real ones."""

    __path__ = ()

    def __init__(self, name, real):
        super().__init__(name)
        self.__dict__["real"] = real

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self.__name__}.{name}"
        value = importlib.import_module(full) if full in self.real else MagicMock(name=full)
        setattr(self, name, value)
        return value


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, root, package, real, stubs):
        self.root, self.package, self.real, self.stubs = root, package, real, stubs

    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if name in self.real:
            base = self.root / name.replace(".", "/")
            file = base.with_suffix(".py") if base.with_suffix(".py").exists() else base / "__init__.py"
            if not file.exists():
                pytest.skip(f"no {file}: another version")
            return importlib.util.spec_from_file_location(name, file)
        if top == self.package or top in self.stubs:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return Stub(spec.name, self.real)

    def exec_module(self, module):
        for name, value in self.stubs.get(module.__name__, {}).items():
            setattr(module, name, value)


@contextmanager
def checkout(trainer, package, real, stubs=None, needs=()):
    """Give a function that imports the real modules named, until the block ends."""
    folder = os.environ.get("ROUTEPACK_TRAINERS")
    root = Path(folder or "/nonexistent") / trainer
    if not (root / package).exists():
        pytest.skip(f"no {trainer} under ROUTEPACK_TRAINERS")
    for name in needs:
        pytest.importorskip(name)
    if package == "src":
        root, package = root / "src", real[0].partition(".")[0]
    stubs = stubs or {}
    tops = {package, *(name.partition(".")[0] for name in stubs)}

    def drop():
        for name in [n for n in sys.modules if n.partition(".")[0] in tops]:
            del sys.modules[name]

    kept = {n: m for n, m in sys.modules.items() if n.partition(".")[0] in tops}
    drop()
    finder = Finder(root, package, set(real), stubs | {top: stubs.get(top, {}) for top in tops})
    sys.meta_path.insert(0, finder)
    try:
        yield importlib.import_module
    finally:
        sys.meta_path.remove(finder)
        drop()
        sys.modules.update(kept)
