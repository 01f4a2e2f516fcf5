"""Somebody who rents bare machines, with a mirror for packages; nothing else is reachable from them."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.bare import recipe
from tests.bare.machine import Image
from tests.bare.mirror import Mirror
from tests.bare.services import BareLambda, BareRunPod
from tests.server.conftest import (  # noqa: F401 - pytest finds fixtures by name
    database_url,
    installation,
    migrated_postgres,
    migrated_sqlite,
    postgres,
)
from tests.server.installation import Installation
from tests.traincard_mirror.conftest import S3Server
from tests.worker.remote.conftest import bucket, service  # noqa: F401
from tests.worker.remote.shopper import Shopper
from tests.worker.remote.toy_provider import ToyService


@pytest.fixture
def kind() -> str:
    return "sqlite"


@pytest.fixture(scope="session")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirror]:
    recipe.skip_where_impossible()
    with Mirror(tmp_path_factory.mktemp("debian")) as mirror:
        yield mirror


@pytest.fixture
def image(mirror: Mirror, bucket: S3Server) -> Image:  # noqa: F811
    """What every machine of a test begins with; a test may change it before it rents one."""
    return Image(recipe.root(), [mirror.port, bucket.port])


@pytest.fixture(params=[BareLambda, BareRunPod], ids=["lambda", "runpod"])
def cloud(
    request: pytest.FixtureRequest, image: Image, monkeypatch: pytest.MonkeyPatch, mirror: Mirror
) -> Iterator[BareLambda | BareRunPod]:
    for variable, value in mirror.environment.items():
        monkeypatch.setenv(variable, value)
    with ExitStack() as stack:
        found = stack.enter_context(request.param(image))
        image.ports += found.ports
        monkeypatch.setenv(found.address_variable, found.url)
        yield found


@pytest.fixture
def shopper(
    installation: Installation,  # noqa: F811
    bucket: S3Server,  # noqa: F811
    service: ToyService,  # noqa: F811
    cloud: BareLambda | BareRunPod,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Shopper]:
    # A machine installs a gigabyte before it says a word.
    monkeypatch.setattr("tests.worker.machine.TIMEOUT_SECONDS", 900)
    with Shopper(installation, bucket, service).shopping(tmp_path) as shopper:
        shopper.connect_by_http(cloud.provider, cloud.credentials)
        yield shopper
