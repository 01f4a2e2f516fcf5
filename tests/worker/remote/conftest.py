"""An installation with a bucket, and a service that rents out machines which really run."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpubloom.providers import registry
from tests.server.installation import Installation
from tests.traincard_mirror.conftest import S3Server
from tests.worker.remote.renter import Renter
from tests.worker.remote.toy_provider import SERVICE, ToyService


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    """One database, unless a test asks for another: machines take long, and little of this is about rows."""
    return str(getattr(request, "param", "sqlite"))


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ToyService]:
    monkeypatch.setitem(registry._MODULES, "toy", "tests.worker.remote.toy_provider")
    SERVICE.append(ToyService(tmp_path / "toy"))
    yield SERVICE[-1]
    SERVICE.pop().close()


@pytest.fixture
def renter(installation: Installation, bucket: S3Server, service: ToyService) -> Renter:
    return Renter(installation, bucket, service)
