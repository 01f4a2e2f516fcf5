"""`bloom models export` and `bloom runs convert-checkpoint` as a person types them."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from gpubloom.cli.app import app
from gpubloom.errors import InputError
from tests.errors import printed
from tests.waiting import wait_until

RUNNER = CliRunner()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "tokenizer.json").write_text("{}")
    save_file(
        {"lm_head.weight": torch.rand(3, 4), "model.norm.weight": torch.ones(4)}, folder / "model.safetensors"
    )
    return folder


@pytest.mark.long
def test_a_model_is_converted_and_told_of(model: Path, tmp_path: Path) -> None:
    told = RUNNER.invoke(
        app, ["runs", "convert-checkpoint", str(model), str(tmp_path / "new"), "--to", "torch", "--json"]
    )
    assert told.exit_code == 0, told.output
    written = json.loads(told.output)
    tensors = torch.load(tmp_path / "new" / "model.pt", weights_only=True)
    assert written["tensors"] == len(tensors) == 2
    assert (written["source_form"], written["can_continue"]) == ("safetensors", False)
    assert (tmp_path / "new" / "tokenizer.json").read_bytes() == (model / "tokenizer.json").read_bytes()


def test_wrong_input_is_one_sentence_and_nothing_is_written(model: Path, tmp_path: Path) -> None:
    for source, target, code in (
        (tmp_path / "nowhere", tmp_path / "new", "folder_not_found"),
        (model, model, "folder_exists"),
    ):
        told = RUNNER.invoke(app, ["runs", "convert-checkpoint", str(source), str(target), "--to", "json"])
        assert told.exit_code == 2
        assert printed(told.stderr) == [code]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_what_the_child_refuses_is_one_sentence(model: Path, tmp_path: Path) -> None:
    told = RUNNER.invoke(
        app, ["runs", "convert-checkpoint", str(model), str(tmp_path / "new"), "--to", "sharded"]
    )
    assert told.exit_code == 2
    assert printed(told.stderr) == ["no_training_state"]
    assert len(told.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_gguf_file_has_the_name_of_a_models_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    def run(fields: dict[str, Any], to: Path) -> dict[str, Any]:
        asked.append(fields)
        raise InputError("stopped", "Enough.")

    monkeypatch.setattr("gpubloom.hub.fetching.local_model", lambda name, home: tmp_path)
    monkeypatch.setattr("gpubloom.cli.export._run", run)
    for model in ("ada/herons-1b@0123abc", str(tmp_path)):
        RUNNER.invoke(app, ["models", "export", model, "--to", str(tmp_path / "out"), "--form", "gguf"])
    # A folder is called by its own name.
    assert [fields["name"] for fields in asked] == ["herons-1b", None]


@pytest.mark.parametrize("asked", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_command_stops_what_writes_for_it(tmp_path: Path, asked: signal.Signals) -> None:
    (tmp_path / "slow.py").write_text(
        "import pathlib, time\n"
        "pathlib.Path('half').touch()\n"
        "try:\n"
        "    time.sleep(20)\n"
        "    pathlib.Path('half').rename('whole')\n"
        "finally:\n"
        "    pathlib.Path('half').unlink(missing_ok=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", "from gpubloom.cli.export import _written; _written('slow')"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until((tmp_path / "half").exists, "the writing process")
    process.send_signal(asked)
    _, errors = process.communicate(timeout=60)
    assert "error[stopped]" in errors
    assert [file.name for file in tmp_path.iterdir() if file.name in {"half", "whole"}] == []
