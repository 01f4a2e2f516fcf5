"""`bloom runs mirror`, as a person calls it."""

import subprocess
import sys
from pathlib import Path

import pytest

from gpubloom.traincard import Reporter
from tests.errors import printed
from tests.traincard_mirror.conftest import S3Server, content

pytest.importorskip("obstore")
pytest.importorskip("typer")

pytestmark = pytest.mark.xdist_group("s3")


def bloom(*arguments: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "gpubloom.cli", "runs", "mirror", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_a_run_goes_to_a_bucket_and_comes_back(server: S3Server, run_dir: Path, tmp_path: Path) -> None:
    with Reporter(run_dir, telemetry_seconds=0) as reporter:
        reporter.metric("loss", 1.0, step=1)
    (run_dir / "checkpoints/step-1").mkdir(parents=True)
    (run_dir / "checkpoints/step-1/model.bin").write_bytes(b"w" * 6_000_000)
    sent = bloom(run_dir, "s3://bucket/runs/first", "--follow")
    assert sent.returncode == 0, sent.stderr
    assert content(server.folder / "bucket/runs/first") == content(run_dir)
    light = bloom("s3://bucket/runs/first", tmp_path / "light")
    assert light.returncode == 0, light.stderr
    assert not (tmp_path / "light/checkpoints").exists()
    assert bloom("s3://bucket/runs/first", tmp_path / "heavy", "--weights", "--follow").returncode == 0
    assert content(tmp_path / "heavy") == content(run_dir)


def test_what_cannot_be_done_is_said_in_a_sentence(server: S3Server, tmp_path: Path) -> None:
    two_folders = bloom(tmp_path, tmp_path)
    assert (two_folders.returncode, "s3://bucket" in two_folders.stderr) == (2, True)
    no_run = bloom(tmp_path, "s3://bucket/x")
    assert (no_run.returncode, "not a run directory" in no_run.stderr) == (2, True)
    nothing_there = bloom("s3://bucket/nothing", tmp_path / "x")
    assert (nothing_there.returncode, "no run at" in nothing_there.stderr) == (2, True)


def test_a_bucket_that_cannot_be_reached_is_an_error_with_a_code(
    server: S3Server, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Reporter(run_dir, telemetry_seconds=0) as reporter:
        reporter.metric("loss", 1.0, step=1)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    lost = bloom(run_dir, "s3://bucket/lost")
    assert (lost.returncode, printed(lost.stderr)) == (1, ["bucket_unavailable"])
