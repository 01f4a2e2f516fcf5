"""`bloom runs`: the run list of a folder and of a server; tags; runs without a config.json."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpubloom.cli.app import app
from gpubloom.plan import Hardware, TrainConfig, plan, run_files
from gpubloom.traincard import Reporter
from tests.errors import printed
from tests.live_server import live_server
from tests.rights import without_rights_of_root
from tests.server.installation import Installation


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def _run(folder: Path, lr: float, seed: int, losses: list[float], *, end: str = "completed") -> Path:
    with Reporter(folder, telemetry_seconds=0, capture=False, announce=False) as reporter:
        reporter.describe({"config": {"lr": lr, "seed": seed}})
        for step, loss in enumerate(losses, start=1):
            reporter.metrics({"eval/loss": loss}, step=step)
        reporter.finish(end)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    runs = tmp_path / "runs"
    for seed, losses in enumerate(([3.0, 1.0], [3.0, 2.0])):
        _run(runs / f"small-{seed}", 0.01, seed, losses)
    _run(runs / "deep" / "large", 0.5, 0, [9.0], end="failed")
    return runs


def _bloom(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["runs", *arguments], env={"COLUMNS": "120"})
    return result.exit_code, result.output


def test_a_folder_is_listed_without_a_server(folder: Path) -> None:
    code, text = _bloom(str(folder), "--columns", "lr,eval/loss.min", "--sort", "lr")
    assert code == 0, text
    small, large = (line.split() for line in text.splitlines()[1:3])
    assert small[:3] == ["small", "(2", "seeds)"]
    assert small[-4:] == ["0.01", "1.5", "±", "0.71"]
    assert (large[0], large[1], large[-1]) == ("large", "failed", "9")
    assert text.splitlines()[-1] == "3 of 3 runs"


def test_the_filter_is_that_of_the_web_app(folder: Path) -> None:
    code, text = _bloom(str(folder), "--filter", "lr > 0.1 and status = failed", "--json")
    assert code == 0, text
    answer = json.loads(text)
    assert [row["id"] for section in answer["sections"] for row in section["rows"]] == ["deep/large"]
    code, text = _bloom(str(folder), "--filter", "lrr > 1")
    assert (code, printed(text)) == (2, ["unknown_column"])
    assert "at character 1" in text


def test_a_run_that_goes_on_is_read_again_and_others_come_from_the_cache(folder: Path) -> None:
    assert "9" in _bloom(str(folder), "--columns", "eval/loss.min", "--filter", "lr > 0.1")[1]
    _run(folder / "deep" / "large", 0.5, 0, [4.0])
    code, text = _bloom(str(folder), "--columns", "eval/loss.min", "--filter", "lr > 0.1")
    assert code == 0, text
    assert text.splitlines()[1].split()[-1] == "4"


def test_tags_and_notes_lie_with_the_run(folder: Path) -> None:
    run = folder / "deep" / "large"
    assert _bloom("label", str(run), "--tag", "bad", "--tag", "old", "--notes", "why")[0] == 0
    assert _bloom("label", str(run), "--untag", "old")[0] == 0
    answer = json.loads(_bloom(str(folder), "--filter", "tag = bad", "--json")[1])
    (row,) = answer["sections"][0]["rows"]
    assert (row["name"], row["tags"], row["notes"]) == ("large", ["bad"], "why")
    assert printed(_bloom("label", str(run))[1]) == ["invalid_option"]


def test_runs_of_any_reporter_are_compared_without_a_config_file(folder: Path) -> None:
    code, text = _bloom(
        "compare", str(folder / "small-0"), str(folder / "deep/large"), "--series", "eval/loss"
    )
    assert code == 0, text
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line.strip()}
    assert rows["lr"][-2:] == ["0.01", "0.5"]


def test_folders_that_cannot_be_read_are_named_with_the_reason(folder: Path) -> None:
    (_run(folder / "not-json", 0.1, 0, [1.0]) / "config.json").write_text("{")
    (folder / "damaged" / "traincard").mkdir(parents=True)
    (folder / "damaged" / "traincard" / "events.jsonl").write_text("no event\n")
    closed = [_run(folder / name, 0.1, 0, [1.0]) for name in ("shut", "hidden/run", "half-shut")]
    shut = [closed[0] / "traincard", folder / "hidden", closed[2] / "traincard" / "events.jsonl"]
    for path in shut:
        path.chmod(0)
    command = [sys.executable, "-m", "gpubloom.cli", "runs", "list", str(folder)]
    done = subprocess.run([*without_rights_of_root(), *command], capture_output=True, text=True, check=False)
    for path in shut:
        path.chmod(0o700)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "3 of 3 runs"
    head, *lines = done.stderr.splitlines()
    assert head == "warning: 5 folders are left out:"
    reasons = dict(line.strip().split(": ", 1) for line in lines)
    assert {name: reason.partition(" ")[0] for name, reason in reasons.items()} == {
        "damaged": "traincard:",
        "half-shut": "events.jsonl:",
        "hidden": "traincard:",
        "not-json": "config.json",
        "shut": "traincard:",
    }


def test_a_run_that_was_killed_before_its_first_event_is_named(folder: Path) -> None:
    killed = folder / "killed run"
    killed.mkdir()
    config = TrainConfig(max_steps=1)
    hardware = Hardware(host_memory_bytes=8 * 10**9, cpu_cores=2)
    for name, text in run_files(config, plan(config, hardware), "0").items():
        (killed / name).write_text(text)
    result = CliRunner().invoke(app, ["runs", "list", str(folder)])
    assert result.stdout.splitlines()[-1] == "3 of 3 runs"
    assert "killed run: incomplete run" in result.stderr
    assert f"bloom train --resume '{killed}'" in result.stderr
    code, text = _bloom("what-ran", str(killed))
    assert (code, printed(text)) == (2, ["run_incomplete"])
    assert f"bloom train --resume '{killed}'" in text
    assert printed(_bloom("label", str(killed), "--tag", "old")[1]) == ["run_incomplete"]


def test_a_folder_with_files_of_the_same_names_is_no_run(folder: Path) -> None:
    for name in ("train.py", "config.json"):
        (folder / name).touch()
    result = CliRunner().invoke(app, ["runs", "list", str(folder)])
    assert (result.stdout.splitlines()[-1], result.stderr) == ("3 of 3 runs", "")


@pytest.mark.long
def test_a_run_is_sent_and_found_on_the_server(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with live_server(tmp_path / "home") as server:
        installation = Installation(server.home, f"sqlite+aiosqlite:///{server.home / 'bloom.db'}")
        token, _ = installation.add_token(installation.add_user("Ada"))
        monkeypatch.setenv("BLOOM_SERVER", server.address)
        monkeypatch.setenv("BLOOM_TOKEN", token)
        code, text = _bloom("send", str(folder / "small-0"), "--project", "Sweep")
        assert code == 0, text
        run_id = text.strip().rpartition("/")[2]
        code, text = _bloom("list", "--columns", "lr,eval/loss.min", "--filter", "project = Sweep")
        assert code == 0, text
        assert text.splitlines()[1].split() == ["small-0", "completed", "0.01", "1"]
        assert _bloom("label", run_id, "--tag", "sent")[1].strip() == "tags: sent"


def test_a_run_is_not_sent_without_a_token(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("BLOOM_TOKEN", raising=False)
    code, text = _bloom("send", str(folder / "small-0"), "--project", "Sweep")
    assert (code, printed(text)) == (2, ["no_api_token"])


def test_a_misspelled_command_is_not_a_folder() -> None:
    assert printed(_bloom("wacth", "x")[1]) == ["usage"]


_WIDE = ("--columns", "lr,eval/loss.min,eval/loss.max,eval/loss.mean,cost,time")


def test_a_narrow_terminal_keeps_the_names_and_leaves_out_columns(folder: Path) -> None:
    listed = CliRunner().invoke(app, ["runs", "list", str(folder), *_WIDE], env={"COLUMNS": "60"})
    head, *rows = listed.output.splitlines()
    assert head.split() == ["run", "status", "lr", "eval/loss.min", "time"]
    assert [row.split()[0] for row in rows[:2]] == ["large", "small"]
    assert rows[2].startswith("Not shown, for lack of room: eval/loss.max, eval/loss.mean, cost.")


def test_a_list_without_runs_has_no_columns(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert _bloom(str(tmp_path / "empty")) == (0, "No runs.\n")
    assert _bloom(str(folder), "--filter", "lr > 9") == (0, "No runs match the filter (0 of 3).\n")


def test_a_pipe_gets_every_column(folder: Path) -> None:
    listed = CliRunner().invoke(app, ["runs", "list", str(folder), *_WIDE], env={"COLUMNS": ""})
    assert listed.output.split()[:8] == ["run", "status", *_WIDE[1].split(",")]


def test_without_a_folder_and_a_sign_in_the_runs_here_are_listed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "no-settings"))
    # A secret that does not exist is empty in automation.
    monkeypatch.setenv("BLOOM_TOKEN", "")
    monkeypatch.chdir(folder.parent)
    code, text = _bloom("list")
    assert code == 0, text
    assert text.splitlines()[-1] == "3 of 3 runs"

    monkeypatch.chdir(folder / "deep")
    code, text = _bloom("list")
    assert (code, printed(text)) == (2, ["run_not_found"])


def test_columns_that_no_run_has_are_named(folder: Path) -> None:
    asked = ("--columns", "lr,eval/los", "--sort", "-nothing", "--group", "seeds,optimiser")
    code, text = _bloom(str(folder), *asked)
    assert code == 0, text
    for name in ("eval/los. Did you mean eval/loss", "nothing.", "optimiser."):
        assert f"warning: No run has a column {name}" in text
    assert "warning" not in _bloom(str(folder), "--columns", "lr,cost", "--sort", "-lr")[1]


@pytest.mark.parametrize("command", ["list", "watch --once", "samples", "what-ran", "checkpoints", "compare"])
def test_a_terminal_gets_no_orders_from_a_run(tmp_path: Path, command: str) -> None:
    orders = "\x1b]0;title\x07\x1b[2J\x1b[31m\x9b1m\x1b]52;c;eA==\x1b\\\x1bc\x08"
    run = tmp_path / "runs" / "odd"
    with Reporter(run, telemetry_seconds=0, capture=False, announce=False) as reporter:
        reporter.describe({f"fact {orders}": f"value {orders}", "config": {"lr": f"low {orders}"}})
        reporter.metrics({f"loss {orders}": 1.0}, step=1)
        reporter.log(f"line {orders} end", "warning")
        reporter.sample(f"prompt {orders}", f"answer {orders}", step=1)
        reporter.checkpoint(f"checkpoints/{orders}", step=1, metrics={"eval/loss": 1.5})
    labels = {"name": f"name {orders}", "tags": [f"tag {orders}"], "notes": orders}
    (run / "labels.json").write_text(json.dumps(labels))
    other = Path(shutil.copytree(run, tmp_path / "runs" / "other"))
    name, *options = command.split()
    named = {"list": [tmp_path / "runs"], "compare": [run, other]}.get(name, [run])
    code, output = _bloom(name, *map(str, named), *options)
    assert code == 0, output
    assert not {"\x1b", "\x9b", "\x07", "\x08"} & set(output), repr(output)
