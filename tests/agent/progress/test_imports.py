"""Which scripts have a Reporter, by what they import."""

import os
from pathlib import Path

import pytest

from gpubloom.agent.progress.imports import knows_traincard
from gpubloom.agent.spec import JobSpec

REPORTER = "from gpubloom.traincard import Reporter\n"


def spec_of(folder: Path, files: dict[str, str], entry: str = "train.py") -> JobSpec:
    for name, text in files.items():
        path = folder / "work" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return JobSpec("job", folder, 1, ("python3", entry), folder="work")


@pytest.mark.parametrize(
    "files",
    [
        {"train.py": "import gpubloom.traincard as card\n"},
        {"train.py": "def main():\n    from metaflow_traincard import Reporter\n"},
        {"train.py": "import loop\n", "loop.py": REPORTER},
        {"train.py": "from mine import loop\n", "mine/loop.py": REPORTER},
        {"train.py": "import mine.deep.loop\n", "mine/deep/loop.py": REPORTER},
        {"train.py": "import mine\n", "mine/__init__.py": "from .a import b\n", "mine/a/b.py": REPORTER},
        {"train.py": "import mine.a.b\n", "mine/a/b.py": "from .. import c\n", "mine/c.py": REPORTER},
        {"sub/train.py": "import loop\n", "sub/loop.py": REPORTER},
    ],
    ids=["own", "in a function", "beside", "package", "deep", "relative", "two up", "sub folder"],
)
def test_a_reporter_is_found_along_the_imports(tmp_path: Path, files: dict[str, str]) -> None:
    entry = "sub/train.py" if "sub/train.py" in files else "train.py"
    assert knows_traincard(spec_of(tmp_path, files, entry))


@pytest.mark.parametrize(
    "files",
    [
        {"train.py": "print('gpubloom')\n", "other.py": REPORTER},
        {"train.py": "import gpubloomer\nimport loop\n", "loop.py": "import train\n"},
        {"train.py": "from gpubloom import (\n"},
        {"train.py": "from .... import outside\n"},
    ],
    ids=["not imported", "circle", "no Python", "out of the folder"],
)
def test_other_scripts_have_none(tmp_path: Path, files: dict[str, str]) -> None:
    (tmp_path / "outside.py").write_text(REPORTER)
    assert not knows_traincard(spec_of(tmp_path, files))


def test_pipes_and_links_in_the_place_of_a_module_are_not_opened(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, {"train.py": "import pipe\nimport link\n"})
    os.mkfifo(tmp_path / "work" / "pipe.py")
    (tmp_path / "secret.py").write_text(REPORTER)
    (tmp_path / "work" / "link.py").symlink_to(tmp_path / "secret.py")
    assert not knows_traincard(spec)
