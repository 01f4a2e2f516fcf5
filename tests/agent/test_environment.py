"""What a training process inherits, and what stays behind."""

import os
from dataclasses import replace

import pytest

from gpubloom.agent.environment import is_secret
from tests.agent.runs import Run


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BLOOM_DATABASE_URL", "postgresql+psycopg://bloom@db/bloom"),
        ("BLOOM_SMTP_URL", "smtp://mail"),
        ("BLOOM_GITHUB_CLIENT_SECRET", "x"),
        ("BLOOM_TOKEN", "x"),
        ("BLOOM_SOMETHING_NEW", "x"),
        ("GOOGLE_CLIENT_SECRET", "x"),
        ("AWS_SECRET_ACCESS_KEY", "x"),
        ("AWS_ACCESS_KEY_ID", "x"),
        ("AWS_SESSION_TOKEN", "x"),
        ("HF_TOKEN", "x"),
        ("WANDB_API_KEY", "x"),
        ("PGPASSWORD_FILE_PASSWORD", "x"),
        ("github_token", "x"),
        ("SSH_AUTH_SOCK", "/tmp/agent"),
        ("ANYTHING", "redis://:hunter2@cache:6379/0"),
    ],
)
def test_secrets_are_recognised(name: str, value: str) -> None:
    assert is_secret(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PATH", "/usr/bin:/bin"),
        ("HOME", "/home/bloom"),
        ("BLOOM_HOME", "/data"),
        ("BLOOM_DATA_ROOTS", "/data/sets"),
        ("BLOOM_TRAINCARD", "off"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("HF_HOME", "/data/hf"),
        ("http_proxy", "http://proxy:3128"),
        ("LD_LIBRARY_PATH", "/usr/local/cuda/lib64"),
        ("CUDA_VISIBLE_DEVICES", "0,1"),
    ],
)
def test_ordinary_variables_are_not_secrets(name: str, value: str) -> None:
    assert not is_secret(name, value)


def test_training_sees_no_secret_and_all_that_it_needs(run: Run) -> None:
    run.script("import json, os; json.dump(dict(os.environ), open('environment.json', 'w'))")
    run.spec = replace(run.spec, attempt=3, environment={"HF_TOKEN": "given to this job", "OWN": "1"})
    inherited = {
        **os.environ,
        "BLOOM_DATABASE_URL": "x",
        "HF_TOKEN": "of the operator",
        "FROM_OUTSIDE": "yes",
    }
    with run.start_agent(env=inherited) as agent:
        agent.wait()
    seen = run.said("environment.json")
    assert isinstance(seen, dict)
    assert "BLOOM_DATABASE_URL" not in seen
    assert seen["HF_TOKEN"] == "given to this job"
    assert seen["OWN"] == "1"
    assert seen["FROM_OUTSIDE"] == "yes"
    assert seen["BLOOM_RUN_DIR"] == str(run.path)
    assert seen["BLOOM_ATTEMPT"] == "3"
    assert seen["PYTHONUNBUFFERED"] == "1"


def test_only_the_owner_can_read_what_a_job_was_given(run: Run) -> None:
    run.files.write_job(run.spec)
    assert run.files.folder.stat().st_mode & 0o077 == 0
