"""Runs that are cleaned up."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.runs import Run


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path / "run")
    yield run
    run.clean_up()
