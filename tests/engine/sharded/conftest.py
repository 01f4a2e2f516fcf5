from collections.abc import Iterator
from pathlib import Path

import pytest
import torch.distributed as dist

from tests.engine.sharded.cases import QUICK
from tests.engine.sharded.members import run_members


@pytest.fixture(autouse=True)
def _leave_the_group() -> Iterator[None]:
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.fixture(scope="session")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes trained together: answers of the quick cases, and a checkpoint of three steps."""
    home = tmp_path_factory.mktemp("two")
    run_members(2, ["-m", "tests.engine.sharded.member", str(home), *QUICK])
    return home
