"""`bloom providers storage` against a real server and a real bucket."""

from collections.abc import Iterator
from functools import partial

import pytest
from typer.testing import CliRunner

from gpubloom.cli.app import app
from tests.cli.conftest import Bloom
from tests.errors import printed
from tests.live_server import FIRST_PASSWORD, LiveServer, live_server
from tests.traincard_mirror.conftest import KEY, SECRET, S3Server

pytest.importorskip("obstore")
pytestmark = pytest.mark.xdist_group("bloom providers storage")


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    home = tmp_path_factory.mktemp("server") / "home"
    with live_server(home, BLOOM_EGRESS_ALLOW="127.0.0.1") as running:
        yield running


@pytest.fixture(scope="module")
def token(server: LiveServer) -> str:
    return server.first_token("read", "write", "admin")


@pytest.fixture
def bloom(bloom: Bloom) -> Bloom:
    return partial(bloom, "providers", "storage")


@pytest.mark.long
def test_a_bucket_is_set_up_checked_and_removed(bloom: Bloom, bucket: S3Server) -> None:
    assert "Bucket: none" in bloom("show").stdout
    where = ("--bucket", "bucket", "--access-key", KEY, "--endpoint", bucket.address)
    wrong = bloom("set", *where, BLOOM_PASSWORD=FIRST_PASSWORD, BLOOM_BUCKET_SECRET="wrong-and-private")
    assert wrong.exit_code == 1
    assert printed(wrong.stderr) == ["bucket_unavailable"]
    assert "secret key does not belong to this access key" in wrong.stderr
    assert "wrong-and-private" not in wrong.stderr + wrong.stdout
    assert "failed    Write a file\nnot tried List files\n" in wrong.stdout
    right = bloom("set", *where, BLOOM_PASSWORD=FIRST_PASSWORD, BLOOM_BUCKET_SECRET=SECRET)
    assert right.exit_code == 0, right.stderr
    assert right.stdout.count("ok  ") == 4
    assert right.stdout.endswith("Saved. The next rented job uses this bucket.\n")
    shown = bloom("show").stdout
    assert f"Bucket: bucket at {bucket.address}, set up by an admin" in shown
    assert "This server: no." in shown
    assert SECRET not in bloom("show", "--json").stdout
    assert bloom("check").exit_code == 0
    assert bloom("remove", BLOOM_PASSWORD=FIRST_PASSWORD).exit_code == 0
    assert printed(bloom("check").stderr) == ["no_store"]


@pytest.mark.parametrize("service", ["r2", "b2", "s3"])
def test_the_steps_for_a_service_are_printed(service: str) -> None:
    done = CliRunner().invoke(app, ["providers", "storage", "guide", service])
    assert done.exit_code == 0, done.stderr
    assert "1. " in done.stdout
    assert "bloom providers storage set --bucket" in done.stdout
