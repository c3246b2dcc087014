"""Functions of an installed package, taken from its file without importing the package.

Trainers' packages import accelerators' libraries and services at their top; the packing functions need none
of that. Nothing is copied: the file of the user's own installation is read each time.
"""

import ast
from importlib import metadata


def functions(package, path, names):
    """Return a namespace with the named functions and classes and the package's version, or None.

    Imports of the package itself are left out; its loggers become silent.
    """
    try:
        files = metadata.files(package) or []
        version = metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
    source = next((file.locate() for file in files if file.as_posix() == path), None)
    if source is None:
        return None
    tree = ast.parse(source.read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if _wanted(node, package, names)]
    namespace = {"__name__": f"{package}_functions", "logger": _Silent()}
    exec(compile(tree, str(source), "exec"), namespace)
    return (namespace, version) if all(name in namespace for name in names) else None


def _wanted(node, package, names):
    if isinstance(node, ast.Import):
        return not any(name.name.split(".")[0] in (package, "torch") for name in node.names)
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").split(".")[0] not in (package, "torch")
    return isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in names


class _Silent:
    def __getattr__(self, name):
        return lambda *_, **__: None
