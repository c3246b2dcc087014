"""The Python of the README and of the tours runs as it is written, each page from top to bottom."""

import importlib
import re
from pathlib import Path

import pytest

import routepack_opt

ROOT = Path(__file__).parents[1]
PAGES = [
    "README.md",
    "docs/start/trainer.md",
    "docs/start/optimization.md",
    "docs/howto/embed.md",
    "docs/howto/trainers/index.md",
    "docs/howto/evaluate.md",
    "docs/semantics.md",
    "docs/reference/metrics.md",
    "docs/placement.md",
    "docs/costs.md",
]


@pytest.mark.parametrize("page", PAGES)
def test_python_of_the_page_runs(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "\n".join(re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S))
    assert code
    missing = set(re.findall(r"\brp\.(\w+)", code)) - set(routepack_opt.__all__)
    if missing:
        pytest.skip(f"not exported yet: {sorted(missing)}")
    monkeypatch.chdir(ROOT)
    exec(compile(code, page, "exec"), {"__name__": page})


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs/howto/trainers").glob("*.md")), ids=lambda page: page.stem
)
def test_names_on_the_trainers_pages_exist(page: Path) -> None:
    code = "\n".join(re.findall(r"^```py\n(.*?)^```$", page.read_text(), re.M | re.S))
    for module, name in re.findall(r"^from (routepack_opt\S*) import (\w+)", code, re.M):
        found = importlib.import_module(module)
        assert hasattr(found, name) or importlib.import_module(f"{module}.{name}")
    for module in re.findall(r"^from routepack_opt.integrations import (\w+) as planned", code, re.M):
        adapter = importlib.import_module(f"routepack_opt.integrations.{module}")
        for name in re.findall(r"\bplanned\.(\w+)", code):
            assert hasattr(adapter, name), name
