from collections.abc import Iterator
from pathlib import Path

import pytest
import torch.distributed as dist

from tests.engine.sharded.cases import QUICK
from tests.engine.sharded.members import run_members


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What two processes computed is shared by all of these tests."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.xdist_group("divided models"))


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
