"""`make ui`: what is served while the web app is built again."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def prepare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """tools/prepare.py, with its folders elsewhere."""
    spec = importlib.util.spec_from_file_location("prepare", ROOT / "tools/prepare.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("UI", "STATIC", "CARD"):
        monkeypatch.setattr(module, name, tmp_path / name.lower())
    return module


def _write(folder: Path, version: str) -> None:
    (folder / "assets").mkdir(parents=True, exist_ok=True)
    (folder / "assets" / f"{version}.js").write_text(version)
    (folder / "index.html").write_text(version)


def test_the_app_is_served_while_it_is_built_again(
    prepare: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    static: Path = prepare.STATIC
    _write(static, "old")
    (static / ".built-from").write_text("old sources")
    built = []

    def build(command: list[str], failure: str, cwd: Path) -> None:
        assert (static / "index.html").read_text() == "old"
        assert (static / "assets/old.js").is_file()
        _write(Path(command[command.index("--outDir") + 1]), "new")
        built.append(command[2])

    monkeypatch.setattr(prepare, "run", build)
    prepare.build_web_app("npm", "new sources")
    assert sorted(built) == ["build:app", "build:card"]
    for folder in (static, prepare.CARD):
        assert (folder / "index.html").read_text() == "new"
        assert [file.name for file in (folder / "assets").iterdir()] == ["new.js"]
    assert (static / ".built-from").read_text() == "new sources"


def test_an_app_that_cannot_be_built_leaves_the_served_one(
    prepare: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(prepare.STATIC, "old")

    def fail(command: list[str], failure: str, cwd: Path) -> None:
        prepare.stop(failure)

    monkeypatch.setattr(prepare, "run", fail)
    with pytest.raises(SystemExit):
        prepare.build_web_app("npm", "new sources")
    assert (prepare.STATIC / "index.html").read_text() == "old"
