"""A server for the commands that ask one, its first person, and `bloom` as that person."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gpubloom.cli.app import app
from tests.live_server import LiveServer, live_server

Bloom = Callable[..., Result]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("server") / "home") as running:
        yield running


@pytest.fixture(scope="module")
def token(server: LiveServer) -> str:
    return server.first_token("read", "write")


@pytest.fixture
def bloom(server: LiveServer, token: str, tmp_path: Path) -> Bloom:
    """Runs a command in this process."""

    def run(*arguments: str, stdin: str | None = None, **environment: str) -> Result:
        told = {
            "BLOOM_SERVER": server.address,
            "BLOOM_TOKEN": token,
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
        }
        return CliRunner().invoke(app, list(arguments), input=stdin, env={**told, **environment})

    return run
