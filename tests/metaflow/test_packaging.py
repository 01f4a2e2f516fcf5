"""Where the code is found: in the wheel beside other extensions, and in a code package on another machine."""

import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.metaflow.conftest import Flow

pytestmark = pytest.mark.xdist_group("metaflow")

ROOT = Path(__file__).parent.parent.parent
SITE = sysconfig.get_path("purelib")


def _python(path: list[str | Path], *arguments: str, cwd: Path) -> str:
    """Python that sees only these folders: -S leaves out the checkout that is installed here."""
    flow = Flow("training", cwd)
    done = subprocess.run(
        [sys.executable, "-S", *arguments],
        cwd=cwd,
        env={**flow.environment, "PYTHONPATH": ":".join(map(str, path))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.long
def test_a_flow_file_imports_no_framework(tmp_path: Path) -> None:
    program = (
        "import sys; from metaflow_traincard import HFTrainCardCallback, Reporter\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)\n"
        "from transformers import TrainerCallback\n"
        "callback = HFTrainCardCallback(Reporter(enabled=False))\n"
        "assert isinstance(callback, TrainerCallback) and isinstance(callback, HFTrainCardCallback)\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=120)


@pytest.mark.long
def test_a_remote_step_finds_its_code_in_the_code_package(tmp_path: Path) -> None:
    flow = Flow("training", tmp_path)
    flow.run("package", "save", str(tmp_path / "code.tgz"))
    there = tmp_path / "there"
    with tarfile.open(tmp_path / "code.tgz") as package:
        package.extractall(there, filter="data")
    program = (
        "import metaflow; assert metaflow.traincard\n"
        "from metaflow.plugins import CARDS; assert any(card.type == 'train' for card in CARDS)\n"
        "from metaflow_traincard import Reporter, live_card, task_files\n"
        "import gpubloom; print(gpubloom.__file__)\n"
        "from gpubloom.traincard.card import write_card\n"
        "Reporter('run', telemetry_seconds=0).close(); write_card('run', 'card.html')"
    )
    said = _python([there / ".mf_code", there, SITE], "-W", "ignore", "-c", program, cwd=tmp_path)
    assert str(there) in said
    assert (tmp_path / "card.html").stat().st_size > 50_000


@pytest.mark.long
def test_the_wheel_is_found_beside_another_extension(tmp_path: Path) -> None:
    built = tmp_path / "dist"
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=300,
    )
    (wheel,) = built.glob("*.whl")
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(installed)
    assert "gpubloom/traincard/card/static/card.js" in names
    assert "gpubloom/server/web/static/index.html" in names
    # In a folder where some package says that it has an extension, Metaflow looks for no unnamed ones.
    other = installed / "metaflow_extensions/other/plugins"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("")
    metadata = installed / "other-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (metadata / "top_level.txt").write_text("metaflow_extensions\n")
    (metadata / "RECORD").write_text("metaflow_extensions/other/plugins/__init__.py,,\n")
    program = "import metaflow; assert metaflow.traincard; import gpubloom; print(gpubloom.__file__)"
    said = _python([installed, SITE], "-W", "ignore", "-c", program, cwd=tmp_path)
    assert str(installed) in said
