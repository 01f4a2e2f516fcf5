"""Packages that are installed for one test: a folder with modules and the record of its entry points."""

import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpubloom import plugins
from tests.engine.conftest import make_config, make_run, text_file

__all__ = ["make_config", "make_run", "text_file"]

EXAMPLES = Path(__file__).parents[2] / "examples/plugins"
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """`install("name", {"callbacks": {"loud": "loud:Loud"}}, loud="class Loud: …")`"""
    before = set(sys.modules)

    def put(package: str, points: dict[str, dict[str, str]], *paths: Path, **modules: str) -> None:
        folder = tmp_path / "packages" / package
        record = folder / f"{package}-1.dist-info"
        record.mkdir(parents=True)
        (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
        lines = []
        for group, names in points.items():
            lines += [f"[gpubloom.{group}]", *(f"{name} = {target}" for name, target in names.items())]
        (record / "entry_points.txt").write_text("\n".join(lines))
        for name, text in modules.items():
            (folder / f"{name}.py").write_text(text)
        for path in (folder, *paths):
            monkeypatch.syspath_prepend(str(path))
        plugins._found.cache_clear()

    yield put
    plugins._found.cache_clear()
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


@pytest.fixture
def examples(install: Install) -> None:
    """The documented ones, as their pyproject.toml names them."""
    declared = tomllib.loads((EXAMPLES / "pyproject.toml").read_text())["project"]["entry-points"]
    points = {group.removeprefix("gpubloom."): names for group, names in declared.items()}
    install("bloom-example-plugins", points, EXAMPLES / "src")
