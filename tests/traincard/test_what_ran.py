"""What ran is recorded once, limited in size, without secrets."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gpubloom.cli.app import app
from gpubloom.traincard import Reporter, snapshot
from gpubloom.traincard.what_ran import dataset_fields, load_what_ran
from tests.traincard.conftest import StartScript, events_of

# So short a run would not wait for a slow git on a busy machine.
CODE = """
    import os
    import gpubloom.traincard.reporter
    from gpubloom.traincard import Reporter
    gpubloom.traincard.reporter._LOOKING_SECONDS = 60
    with Reporter(telemetry_seconds=0) as reporter:
        reporter.metric("loss", 1.0, 1)
"""


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "init.defaultBranch=main")
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"}
    subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, env=environment
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    git(tmp_path, "remote", "add", "origin", "https://ada:hunter2222@example.org/a.git")
    (tmp_path / "train.py").write_text("lr = 1\n")
    (tmp_path / ".env").write_text("KEY=one\n")
    git(tmp_path, "add", "-f", "train.py", ".env")
    git(tmp_path, "commit", "-qm", "first")
    (tmp_path / "train.py").write_text("lr = 2\napi_key = 'abcdefgh12345'\n")
    (tmp_path / ".env").write_text("KEY=a-private-value\n")
    (tmp_path / "new.txt").write_text("new")
    return tmp_path


def test_a_plain_script_records_commit_changes_command_machine_and_packages(
    start_script: StartScript, run_dir: Path, checkout: Path
) -> None:
    process = start_script(CODE, "--token", "abc", "--lr", "1e-3", BLOOM_WHAT_RAN="on")
    assert process.communicate()[1] == ""
    ran = load_what_ran(run_dir)
    assert ran["command"][-4:] == ["--token", "[hidden]", "--lr", "1e-3"]
    assert len(ran["git"]["commit"]) == 40
    assert (ran["git"]["branch"], ran["git"]["changed"]) == ("main", True)
    assert "new.txt" in ran["git"]["untracked"]
    assert "+lr = 2" in ran["git"]["diff"]
    assert ran["packages"]["pytest"]
    assert ran["machine"]["cpus"] == os.cpu_count()
    assert snapshot(run_dir)["what_ran"] == ran
    text = "".join(path.read_text() for path in run_dir.rglob("*.jsonl"))
    for secret in ("abcdefgh12345", "hunter2222", "a-private-value"):
        assert secret not in text


def test_nothing_is_recorded_when_it_is_turned_off_and_a_large_diff_is_cut(
    start_script: StartScript, run_dir: Path, checkout: Path
) -> None:
    start_script(CODE).communicate()
    assert load_what_ran(run_dir) == {}
    (checkout / "train.py").write_text("x = 1\n" * 200_000)
    start_script(CODE, BLOOM_WHAT_RAN="on").communicate()
    git_state = load_what_ran(run_dir)["git"]
    assert len(git_state["diff"]) <= 128 * 1024
    assert git_state["diff_characters_left_out"] > 1_000_000


def test_a_job_does_not_look_above_its_run_directory(
    start_script: StartScript, run_dir: Path, checkout: Path
) -> None:
    work = run_dir / "work"
    work.mkdir(parents=True)
    code = f"import os; os.chdir({str(work)!r})\n" + "\n".join(line[4:] for line in CODE.splitlines())
    start_script(code, BLOOM_WHAT_RAN="on", BLOOM_JOB_ID="00000000-0000-0000-0000-000000000000").communicate()
    assert "git" not in load_what_ran(run_dir)
    assert load_what_ran(run_dir)["command"]


class Rows(list[int]):
    _fingerprint = "5f3c"


def test_configs_and_datasets_are_kept_by_name_over_attempts(run_dir: Path, tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text("{}\n")
    for rate in (1, 2):
        with Reporter(run_dir, telemetry_seconds=0) as reporter:
            reporter.config({"lr": rate, "hub_token": "abc"}, "TrainingArguments")
            reporter.config({"big": ["y" * 100] * 10_000}, "large")
            reporter.dataset("train", Rows([1, 2, 3]))
            reporter.dataset("eval", data)
            reporter.dataset("stream", iter([]))
    ran = load_what_ran(run_dir)
    assert ran["configs"]["TrainingArguments"] == {"lr": 2, "hub_token": "[hidden]"}
    assert len(json.dumps(ran["configs"]["large"])) < 70_000
    assert ran["datasets"][0] == {"name": "train", "fingerprint": "5f3c", "rows": 3}
    assert ran["datasets"][1]["fingerprint"].startswith("sha256:")
    assert len(ran["datasets"]) == 2
    assert len(events_of(run_dir, "ran")) == 8


def test_data_in_memory_has_a_fingerprint_of_its_content() -> None:
    torch = pytest.importorskip("torch")

    def recorded(data: Any) -> dict[str, Any]:
        fields = dataset_fields("train", data)
        assert fields is not None
        return dict(fields["datasets"][0])

    numbers = torch.arange(8).reshape(4, 2)
    found = recorded(numbers)
    # A tensor's method `split` is no split.
    assert found.keys() == {"name", "rows", "fingerprint"}
    assert found["rows"] == 4
    assert recorded(numbers.clone()) == found
    others = [
        numbers + 1, numbers.reshape(2, 4), numbers.to(torch.bfloat16), numbers.numpy().astype("int32"),
        torch.utils.data.TensorDataset(numbers, numbers), ["a", "b"], [{"text": "a"}], ({"text": "b"},),
    ]  # fmt: skip
    prints = {recorded(data)["fingerprint"] for data in others}
    assert len(prints) == len(others)
    assert found["fingerprint"] not in prints
    assert all(each.startswith("sha256:") for each in prints)
    # Of very much data the beginning counts.
    assert recorded(["x" * 1000] * 20_000)["fingerprint"].startswith("start:")
    # Rows that are no plain values are counted, and not looked into.
    assert recorded([object()]) == {"name": "train", "rows": 1}


def test_the_command_prints_it_for_people_and_programs(run_dir: Path) -> None:
    with Reporter(run_dir, telemetry_seconds=0) as reporter:
        reporter.config({"lr": 1e-3})
    (run_dir / "config.json").write_text('{"epochs": 3}')
    shown = CliRunner().invoke(app, ["runs", "what-ran", str(run_dir)])
    assert shown.exit_code == 0
    assert "lr = 0.001" in shown.output
    found: Any = json.loads(CliRunner().invoke(app, ["runs", "what-ran", str(run_dir), "--json"]).output)
    assert found["configs"] == {"TrainConfig": {"epochs": 3}, "config": {"lr": 1e-3}}
