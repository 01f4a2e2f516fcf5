"""A home with runs in it and a provider for them."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpubloom.providers import Devices, LocalProvider
from gpubloom.providers.local.provider import agent_status
from tests.agent.runs import Run
from tests.storage.conftest import bucket, store  # noqa: F401 - pytest finds fixtures by name

GPUS = ("GPU-a", "GPU-b")


def machine(home: Path) -> Devices:
    """This machine, as if it had two GPUs."""
    return Devices(home, find_gpus=lambda: GPUS)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def new_run(home: Path) -> Iterator[Callable[..., Run]]:
    made: list[Run] = []

    def new_run(script: str) -> Run:
        made.append(Run(home / "runs" / f"job-{len(made)}", script))
        return made[-1]

    yield new_run
    ending = LocalProvider(home, warm=False, devices=machine(home))
    for run in made:
        if agent_status(run.path, 1).alive:
            asyncio.run(ending.stop(run.path, force=True))


@pytest.fixture
def provider(home: Path) -> LocalProvider:
    """Plain starts only."""
    return LocalProvider(home, warm=False, devices=machine(home))
