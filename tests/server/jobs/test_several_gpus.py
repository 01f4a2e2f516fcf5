"""A job uses, and is given, every GPU of a machine unless its config says otherwise."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gpubloom.plan import Hardware, TrainConfig
from gpubloom.server.jobs.launch import CannotRun, Launch, decide, read_config
from gpubloom.server.problems import InvalidInput
from gpubloom.server.settings import Settings
from tests.errors import raises

TWO = Hardware.parse("2x A100 80GB, 256 GB host, 16 cores")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("The sea. " * 5_000, encoding="utf-8")
    return path


def decided(text: Path, **fields: Any) -> Launch:
    config = TrainConfig.model_validate({"data": {"train_path": str(text)}, **fields})
    return asyncio.run(decide([TWO], config, gpu_type=None, host_memory=None))


def test_every_gpu_is_kept_for_the_job_and_said_in_its_config(text: Path) -> None:
    launch = decided(text)
    assert launch.gpus == 2
    assert launch.config.processes == 2
    assert launch.plan.tokens_per_step == 2 * decided(text, processes=1).plan.tokens_per_step


def test_one_gpu_where_one_process_is_asked_for_and_none_on_a_cpu(text: Path) -> None:
    assert decided(text, processes=1).gpus == 1
    assert decided(text, device="cpu").gpus == 0
    assert decided(text, device="cpu", processes="auto").config.processes == "auto"


def test_more_processes_than_gpus_cannot_run_here(text: Path) -> None:
    with raises(CannotRun, code="more_processes_than_gpus"):
        decided(text, processes=3)


def test_a_server_takes_nobody_to_a_cluster_of_its_own(tmp_path: Path) -> None:
    settings = Settings(_env_file=None, home=tmp_path)
    with pytest.raises(InvalidInput) as refused:
        read_config({"cluster": "ray", "processes": 2}, settings, name="a job")
    assert "bloom train --ray" in str(refused.value.errors)
