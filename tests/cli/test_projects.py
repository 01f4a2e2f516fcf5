"""`bloom auth login` and `bloom projects` against a real server."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import httpx2
import pytest

from tests.errors import printed
from tests.live_server import LiveServer

Bloom = Callable[..., subprocess.CompletedProcess[str]]

# Together, so that the server is started once.
pytestmark = pytest.mark.xdist_group("bloom projects")


@pytest.fixture
def bloom(server: LiveServer, tmp_path: Path) -> Bloom:
    def run(*arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "gpubloom.cli", *arguments],
            env={
                **os.environ,
                "BLOOM_SERVER": server.address,
                "XDG_CONFIG_HOME": str(tmp_path / "config"),
                **environment,
            },
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


@pytest.mark.long
def test_projects_can_be_created_changed_listed_and_deleted(bloom: Bloom, token: str, tmp_path: Path) -> None:
    login = bloom("auth", "login", BLOOM_TOKEN=token)
    assert login.returncode == 0, login.stderr
    assert "Ada <ada@example.com>" in login.stdout
    stored = tmp_path / "config/gpubloom/credentials.json"
    assert stored.stat().st_mode & 0o077 == 0

    made = bloom("projects", "create", "First", "--size", "0.5", "--description", "a try", "--json")
    assert made.returncode == 0, made.stderr
    project = json.loads(made.stdout)
    edited = bloom("projects", "edit", project["id"], "--name", "Second", "--description", "", "--json")
    assert json.loads(edited.stdout) | {"updatedAt": ""} == project | {
        "name": "Second",
        "description": None,
        "updatedAt": "",
    }
    assert "Second" in bloom("projects", "list").stdout
    assert bloom("projects", "delete", project["id"], "--yes").returncode == 0
    assert "No projects found" in bloom("projects", "list").stdout


@pytest.fixture
def project(server: LiveServer, bloom: Bloom, token: str) -> Iterator[str]:
    """Gone afterwards with its jobs: whatever comes next finds no projects."""
    made = bloom("projects", "create", "Demo", "--size", "0.001", "--json", BLOOM_TOKEN=token)
    project = json.loads(made.stdout)["id"]
    yield project
    with httpx2.Client(base_url=server.address, headers={"Authorization": f"Bearer {token}"}) as client:
        for job in client.get("/api/jobs").json()["items"]:
            client.delete(f"/api/jobs/{job['id']}").raise_for_status()
        client.delete(f"/api/projects/{project}").raise_for_status()


@pytest.mark.long
def test_jobs_can_be_started_listed_paused_and_cancelled(
    bloom: Bloom, token: str, project: str, tmp_path: Path
) -> None:
    config = tmp_path / "config.json"
    config.write_text('{"max_steps": 5}')
    started = bloom("jobs", "start", project, "--config", str(config), "--json", BLOOM_TOKEN=token)
    assert started.returncode == 0, started.stderr
    job = json.loads(started.stdout)["id"]
    # Nobody works here: the job waits.
    assert "position 1 in the queue" in bloom("jobs", "show", job, BLOOM_TOKEN=token).stdout
    assert "paused" in bloom("jobs", "pause", job, BLOOM_TOKEN=token).stdout
    assert "queued" in bloom("jobs", "resume", job, BLOOM_TOKEN=token).stdout
    assert "cancelled" in bloom("jobs", "cancel", job, BLOOM_TOKEN=token).stdout
    again = bloom("jobs", "pause", job, BLOOM_TOKEN=token)
    assert (again.returncode, printed(again.stderr)) == (2, ["wrong_state"])
    assert job in bloom("jobs", "list", BLOOM_TOKEN=token).stdout
    nothing = bloom("jobs", "download", job, str(tmp_path / "model"), BLOOM_TOKEN=token)
    assert (nothing.returncode, printed(nothing.stderr)) == (2, ["no_model_yet"])


def test_a_mistake_ends_with_a_sentence_and_code_2(bloom: Bloom, token: str) -> None:
    refused = bloom("projects", "create", "X", "--size", "-1", BLOOM_TOKEN=token)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert printed(refused.stderr) == ["greater_than"]
    assert "modelSize" in refused.stderr
    missing = bloom("projects", "show", str(uuid4()), BLOOM_TOKEN=token)
    assert (missing.returncode, printed(missing.stderr)) == (2, ["not_found"])


def test_without_a_token_the_next_step_is_named(bloom: Bloom) -> None:
    result = bloom("projects", "list")
    assert result.returncode == 2
    assert printed(result.stderr) == ["no_api_token"]


def test_a_token_can_be_piped_in_and_the_address_needs_no_scheme(
    bloom: Bloom, token: str, server: LiveServer
) -> None:
    done = bloom("auth", "login", "--server", server.address.removeprefix("http://"), stdin=f"{token}\n")
    assert (done.returncode, done.stderr) == (0, "")
    listed = bloom("projects", "list")
    assert listed.returncode == 0, listed.stderr


def test_what_is_no_token_is_refused_before_it_is_sent(bloom: Bloom) -> None:
    done = bloom("auth", "login", stdin="my password\n", BLOOM_SERVER="http://127.0.0.1:9")
    assert done.returncode == 2
    assert printed(done.stderr) == ["invalid_api_token"]


def test_a_wrong_token_is_refused_and_not_stored(bloom: Bloom, tmp_path: Path) -> None:
    result = bloom("auth", "login", BLOOM_TOKEN="bloom_wrong")
    assert result.returncode == 1
    assert printed(result.stderr) == ["invalid_api_token"]
    assert not (tmp_path / "config/gpubloom/credentials.json").exists()


def test_a_stored_token_is_not_sent_to_another_server(bloom: Bloom, token: str) -> None:
    assert bloom("auth", "login", BLOOM_TOKEN=token).returncode == 0
    other_server = bloom("projects", "list", BLOOM_SERVER="http://127.0.0.1:9")
    assert other_server.returncode == 2
    assert printed(other_server.stderr) == ["no_api_token"]


@pytest.mark.long
def test_a_server_that_does_not_answer_is_named(bloom: Bloom, token: str) -> None:
    result = bloom("projects", "list", BLOOM_SERVER="http://127.0.0.1:9", BLOOM_TOKEN=token)
    assert result.returncode == 1
    assert printed(result.stderr) == ["unreachable"]
    assert "http://127.0.0.1:9" in result.stderr
