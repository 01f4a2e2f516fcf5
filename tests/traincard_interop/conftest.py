"""Runs to hand to other tools."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpubloom.traincard.interop import wandb_style


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in ("BLOOM_RUN_DIR", "BLOOM_ATTEMPT", "BLOOM_TRAINCARD", "RANK", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    yield
    wandb_style.finish()


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "run"
