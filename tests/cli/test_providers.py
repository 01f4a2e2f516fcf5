"""`bloom providers` against a real server, and a fake of a service."""

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpubloom.cli.app import app
from tests.cli.conftest import Bloom
from tests.errors import printed
from tests.live_server import FIRST_PASSWORD, LiveServer, live_server
from tests.providers.services.replicate_service import ReplicateService

# Together, so that the server is started once.
pytestmark = pytest.mark.xdist_group("bloom providers")


@pytest.fixture(scope="module")
def service() -> Iterator[ReplicateService]:
    with ReplicateService() as service:
        yield service


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, service: ReplicateService) -> Iterator[LiveServer]:
    home = tmp_path_factory.mktemp("server") / "home"
    with live_server(home, **service.environment) as running:
        yield running


@pytest.fixture
def bloom(bloom: Bloom) -> Bloom:
    return partial(bloom, "providers")


@pytest.mark.long
def test_a_service_is_connected_checked_and_disconnected(
    bloom: Bloom, service: ReplicateService, tmp_path: Path
) -> None:
    listed = bloom("list")
    assert listed.exit_code == 0, listed.stderr
    assert re.search("replicate +not connected", listed.stdout)
    values = tmp_path / "values.json"
    values.write_text(json.dumps({**service.credentials, "api_key": "r8_wrong"}))
    refused = bloom("connect", "replicate", "--file", str(values), BLOOM_PASSWORD=FIRST_PASSWORD)
    assert refused.exit_code == 2
    assert printed(refused.stderr) == ["bad_credentials"]
    assert "r8_wrong" not in refused.stderr + refused.stdout
    values.write_text(json.dumps(service.credentials))
    # A token alone is not enough: it might have leaked.
    assert bloom("connect", "replicate", "--file", str(values), BLOOM_PASSWORD="guess").exit_code == 2
    connected = bloom("connect", "replicate", "--file", str(values), BLOOM_PASSWORD=FIRST_PASSWORD)
    assert connected.stdout == "Replicate: connected (somebody)\n", connected.stderr
    assert "connected (somebody)" in bloom("list").stdout
    assert service.api_key not in bloom("list", "--json").stdout
    assert bloom("check", "replicate").exit_code == 0
    service.revoke()
    checked = bloom("check", "replicate")
    assert checked.exit_code == 1
    assert "does not accept the credentials" in checked.stdout
    gone = bloom("disconnect", "replicate", BLOOM_PASSWORD=FIRST_PASSWORD)
    assert gone.exit_code == 0, gone.stderr
    assert re.search("replicate +not connected", bloom("list").stdout)


def test_what_cannot_be_connected_is_said(bloom: Bloom) -> None:
    unknown = bloom("connect", "nowhere")
    assert unknown.exit_code == 2
    assert printed(unknown.stderr) == ["unknown_provider"]
    colab = bloom("connect", "colab")
    assert colab.exit_code == 2
    assert printed(colab.stderr) == ["provider_unavailable"]


def test_the_model_for_replicate_is_written_into_a_new_folder(tmp_path: Path) -> None:
    command = ["providers", "replicate-model", str(tmp_path / "model"), "--package", "torch==2.9"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.stderr
    assert "cog push" in done.stdout
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "cog.yaml",
        "requirements.txt",
        "train.py",
    ]
    assert "torch==2.9" in (tmp_path / "model" / "requirements.txt").read_text()
    again = CliRunner().invoke(app, command)
    assert again.exit_code == 2
    assert printed(again.stderr) == ["folder_not_empty"]


def test_a_credit_is_stated_listed_used_in_offers_and_removed(bloom: Bloom) -> None:
    assert "No credits are stated" in bloom("credits").stdout
    stated = bloom("set-credit", "lambda", "30", "--as-of", "2026-11-01")
    assert stated.stdout == "Lambda: $30.00 of credit left.\n", stated.stderr
    assert re.search(r"lambda +30\.00 +30\.00 +2026-11-01 +0\.00", bloom("credits").stdout)
    figures = ("offers", "--memory", "12", "--hours", "4", "--json")
    found = json.loads(bloom(*figures, "--stated-credits").stdout)["offers"]
    covered = [offer for offer in found if offer["credit"] is not None]
    assert {offer["provider"] for offer in covered} == {"lambda"}
    assert found[0] in covered
    plain = json.loads(bloom(*figures).stdout)["offers"]
    assert all(offer["credit"] is None for offer in plain)
    shown = bloom(*figures[:-1], "--stated-credits", COLUMNS="140").stdout
    assert "you pay $" in shown
    assert "from your credits at Lambda" in shown
    future = bloom("set-credit", "lambda", "30", "--as-of", "2999-01-01")
    assert (future.exit_code, printed(future.stderr)) == (2, ["day_in_future"])
    assert bloom("remove-credit", "lambda").exit_code == 0
    again = bloom("remove-credit", "lambda")
    assert (again.exit_code, printed(again.stderr)) == (2, ["no_credit"])
