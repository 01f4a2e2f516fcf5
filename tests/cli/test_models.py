"""`bloom models` and `bloom datasets pull`, as a person types them; the hub is on loopback."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpubloom.cli.app import app
from tests.errors import printed
from tests.hub.conftest import hub  # noqa: F401 - a fixture
from tests.hub.fake_hub import TOKEN, FakeHub
from tests.tiny_models import make_tiny_model

RUNNER = CliRunner()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("cli") / "tiny")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BLOOM_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def test_the_catalogue_is_listed_with_memory_by_method() -> None:
    told = RUNNER.invoke(app, ["models", "list"])
    assert told.exit_code == 0
    assert "Qwen/Qwen2.5-7B-Instruct" in told.output
    row = next(line for line in told.output.splitlines() if "Qwen2.5-7B-Instruct" in line)
    # GPU memory of full fine-tuning, LoRA and QLoRA.
    assert row.split()[-2] == "18"
    found = json.loads(RUNNER.invoke(app, ["models", "list", "--json"]).output)
    assert found[0]["models"][0]["memory"]["lora"] > 0


def test_a_check_says_what_is_wrong_and_ends_with_one(model: Path, tmp_path: Path) -> None:
    good = RUNNER.invoke(app, ["models", "check", str(model)])
    assert (good.exit_code, "The model can be trained." in good.output) == (0, True)
    broken = Path(shutil.copytree(model, tmp_path / "broken"))
    (broken / "tokenizer.json").unlink()
    told = RUNNER.invoke(app, ["models", "check", str(broken)])
    assert told.exit_code == 1
    assert "✗ tokenizer.json is missing" in told.output
    as_json = json.loads(RUNNER.invoke(app, ["models", "check", str(broken), "--json"]).output)
    assert as_json["findings"][0]["code"] == "tokenizer_missing"


def test_of_a_run_its_final_model_is_checked(model: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    shutil.copytree(model, tmp_path / "model")
    good = RUNNER.invoke(app, ["models", "check", str(tmp_path)])
    assert (good.exit_code, "The model can be trained." in good.output) == (0, True)


def test_a_model_is_pulled_by_id_and_found_again(hub: FakeHub, model: Path, home: Path) -> None:  # noqa: F811
    repo = hub.add("org/tiny", contents(model))
    told = RUNNER.invoke(app, ["models", "pull", "org/tiny"])
    folder = home / "hub" / "models" / "org--tiny" / repo.revision()
    assert told.stdout.strip() == str(folder)
    assert contents(folder) == contents(model)
    assert f"org/tiny@{repo.revision()[:12]}" in RUNNER.invoke(app, ["models", "list", "--fetched"]).output
    missing = RUNNER.invoke(app, ["models", "pull", "org/none"])
    assert missing.exit_code == 2
    assert printed(missing.stderr) == ["not_found"]


def test_a_dataset_is_pulled_by_id_into_a_named_folder_or_into_data(
    hub: FakeHub,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub.add("org/data", {"train.jsonl": b'{"text": "a"}\n'}, "dataset")
    told = RUNNER.invoke(app, ["datasets", "pull", "org/data", "--to", str(tmp_path / "data")])
    assert told.exit_code == 0
    assert Path(told.stdout.strip()).read_bytes() == b'{"text": "a"}\n'
    monkeypatch.chdir(tmp_path / "data")
    again = RUNNER.invoke(app, ["datasets", "pull", "org/data", "--json"])
    assert json.loads(again.stdout)["path"].startswith(str(tmp_path / "data" / "data" / "data"))


@pytest.fixture
def real_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.mark.long
@pytest.mark.usefixtures("real_process")
def test_an_export_is_written_replayed_and_pushed_and_comes_back_equal(
    hub: FakeHub,  # noqa: F811
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    target = tmp_path / "out" / "exported"
    arguments = ["models", "export", str(model), "--to", str(target), "--dtype", "fp32", "--device", "cpu"]
    told = RUNNER.invoke(app, [*arguments, "--prompt", "Hello", "--push", "me/exported"])
    assert told.exit_code == 0, told.output
    assert "Same answer before and after: 1 of 1 prompts" in told.output
    assert f"Pushed to {hub.url}/me/exported" in told.output
    assert TOKEN not in told.output
    assert hub.repos["model", "me/exported"].private
    back = tmp_path / "back"
    RUNNER.invoke(app, ["models", "pull", "me/exported", "--to", str(back)])
    hashes = [
        {n: hashlib.sha256(c).hexdigest() for n, c in contents(folder).items()} for folder in (target, back)
    ]
    assert hashes[0] == hashes[1]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["exported"], "nothing else is left"
    again = RUNNER.invoke(app, arguments)
    assert again.exit_code == 2
    assert printed(again.stderr) == ["folder_exists"]


@pytest.mark.long
@pytest.mark.usefixtures("real_process")
def test_a_push_that_is_refused_keeps_the_export(
    hub: FakeHub,  # noqa: F811
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    told = RUNNER.invoke(
        app, ["models", "export", str(model), "--to", str(tmp_path / "out"), "--push", "me/x"]
    )
    assert told.exit_code == 2
    assert printed(told.stderr) == ["no_access"]
    assert f"The exported model is in {tmp_path / 'out'}" in told.stderr
    assert (tmp_path / "out" / "model.safetensors").is_file()
    assert "hf_wrong" not in told.output


@pytest.mark.long
def test_ctrl_c_leaves_nothing(model: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "gpubloom.cli",
        "models",
        "export",
        str(model),
        "--to",
        str(tmp_path / "out"),
    ]
    process = subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE)
    # Its lock is taken: the task has begun.
    while not list(tmp_path.glob(".export-*/**/*lock*")):
        time.sleep(0.02)
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Nothing was written" in said
    assert [path.name for path in tmp_path.iterdir()] == []


def test_what_is_no_model_is_said_in_a_sentence(tmp_path: Path) -> None:
    told = RUNNER.invoke(app, ["models", "export", str(tmp_path / "nowhere"), "--to", str(tmp_path / "out")])
    assert told.exit_code == 2
    assert printed(told.stderr) == ["not_found"]
