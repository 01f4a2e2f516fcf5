"""A real bucket on the loopback address, and a job for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpubloom.storage import StorageSettings, Store
from tests.traincard_mirror.conftest import KEY, SECRET, S3Server


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[S3Server]:
    with S3Server(tmp_path / "s3") as server:
        yield server


@pytest.fixture
def store(bucket: S3Server) -> Store:
    return Store(StorageSettings("bucket", KEY, SECRET, bucket.address, prefix="bloom"))
