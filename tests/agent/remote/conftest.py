"""A bucket, and instances that are cleaned up."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpubloom.storage import Store
from tests.storage.conftest import bucket, store  # noqa: F401 - fixtures
from tests.storage.instances import Instance

Instances = Callable[..., Instance]


@pytest.fixture
def instance(store: Store, tmp_path: Path) -> Iterator[Instances]:  # noqa: F811 - the fixture
    made: list[Instance] = []

    def make(files: dict[str, str], **mailbox: Any) -> Instance:
        made.append(Instance(store, tmp_path, files, **mailbox))
        return made[-1]

    yield make
    for one in made:
        one.clean_up()
