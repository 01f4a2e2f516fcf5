"""Tables fit 80 columns with realistic wide values, and cut no number and no id."""

import math
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from typer.testing import CliRunner

from gpubloom.cli.app import app
from gpubloom.cli.tables import wrap_parts
from gpubloom.plan import Hardware
from gpubloom.traincard import Reporter

WIDTH = 80
ID = str(UUID(int=2**128 - 1))
OTHER_ID = str(UUID(int=2**127))
NAME = "Fine-tuning of Llama-3.1-8B-Instruct on the support tickets of 2026, second attempt [v2]"
MACHINE = f"ip-172-31-45-112.ec2.internal-{ID}"

Answers = dict[str, Any]


def _bloom(*arguments: str) -> list[str]:
    done = CliRunner().invoke(app, list(arguments), env={"COLUMNS": str(WIDTH), "NO_COLOR": "1"})
    assert done.exit_code in {0, 1}, done.output
    return done.stdout.splitlines()


def _answer(monkeypatch: pytest.MonkeyPatch, *answers: Any) -> None:
    """Has the server give these answers, the last one again and again."""
    left = list(answers)
    for commands in ("compare", "datasets", "jobs", "projects", "providers"):
        monkeypatch.setattr(
            f"gpubloom.cli.{commands}.call", lambda *_, **__: left.pop(0) if len(left) > 1 else left[0]
        )


def _job() -> Answers:
    return {
        "id": ID,
        "name": NAME,
        "status": "provisioning",
        "provider": "digitalocean",
        "step": 1_234_567,
        "total_steps": 12_345_678,
        "loss": 1234.5678,
        "cost_so_far": 12_345.67,
        "rows_used": 1_234_567,
        "rows_total": 9_876_543,
    }


def jobs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[list[str], list[str]]:
    _answer(monkeypatch, {"items": [_job()], "total": 1})
    numbers = ["step 1,234,567 of 12,345,678", "loss 1235", "$12,345.67", "1,234,567 of 9,876,543 rows used"]
    return _bloom("jobs", "list"), [ID, "provisioning", *numbers]


def offers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[list[str], list[str]]:
    monkeypatch.setattr("gpubloom.plan.detect_hardware", lambda: Hardware.parse("64 GB host, 8 cores"))
    monkeypatch.delenv("BLOOM_PRICES", raising=False)
    shown = _bloom(
        "providers", "offers", "--memory", "70", "--hours", "700", "--gpus", "8", "--all", "--skypilot"
    )
    return shown, ["Lambda", "B200", "53.52", "DigitalOcean"]


def plan(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[list[str], list[str]]:
    monkeypatch.chdir(tmp_path)
    settings = ("--set", "batch_size=8", "--set", "memory=stream")
    shown = _bloom("plan", "--shape", "130b", "--machine", "H200, 4096 GB host", *settings)
    # Sentences are left to the terminal, which wraps them.
    drawn = [line for line in shown if any(sign in line for sign in "█▓▒░━") or line.startswith("   ")]
    return drawn, ["GPU memory", "Host memory", " GB", "optimizer"]


def models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[list[str], list[str]]:
    return _bloom("models", "list"), [
        "mistralai/Mistral-Small-24B-Instruct-2501",
        "131,072",
        "falcon-llm-license",
    ]


def compare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[list[str], list[str]]:
    ids = [str(UUID(int=number)) for number in range(8)]
    figures = {"best_eval_loss": 1.234567e-5, "steps": 12_345_678, "tokens": 123_456_789_012}
    outcome = {
        **figures,
        "final": {"train/loss": math.pi},
        "tokens_per_second": 123_456.7,
        "seconds": 98_765.4,
    }
    differences = [
        {"path": "optimizer.weight_decay", "values": [0.000123456 * number for number in range(8)]},
        {"path": "data.train_path", "values": [f"/data/projects/support/{number}.jsonl" for number in ids]},
        {"path": "max_steps", "values": [12_345_678 + number for number in range(8)]},
    ]
    found = {
        "outcomes": [{"id": each, "name": NAME, "status": "completed", **outcome} for each in ids],
        "differences": differences,
        "fact_differences": [],
    }
    _answer(monkeypatch, found, {"series": []})
    numbers = [str(12_345_678 + number) for number in range(8)]
    return _bloom("runs", "compare", *ids), [*numbers, "0.000864192", "1.23e-05", "123G", "98.8k", "3.142"]


def watch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[list[str], list[str]]:
    run = tmp_path / "run"
    with Reporter(run, telemetry_seconds=0) as reporter:
        reporter.phase("evaluation of the checkpoint")
        reporter.resumed(1_234_567)
        gpus = {f"gpu/{number}/memory_used": 123.4e9 for number in range(8)}
        totals = {f"gpu/{number}/memory_total": 141e9 for number in range(8)}
        reporter.system({"cpu/utilization": 100.0, **gpus, **totals})
        for step in (12_345_677, 12_345_678):
            reporter.metrics({"train/loss": 1.2345, "lr": 1.234e-5, "tokens_per_second": 123_456.0}, step)
            reporter.progress(step, 98_765_432, epoch=12.34, epochs=100)
    gpu = [f"GPU {number} 123.4/141 GB" for number in range(8)]
    return _bloom("runs", "watch", str(run), "--once"), [
        "step 12,345,678/98,765,432",
        "epoch 12.34/100",
        *gpu,
    ]


def projects(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[list[str], list[str]]:
    _answer(monkeypatch, {"items": [{"id": ID, "modelSize": 405.123, "name": NAME}], "total": 12_345})
    return _bloom("projects", "list"), [ID, "405.123 B", "12344"]


def providers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[list[str], list[str]]:
    reason = "The package skypilot is not installed on the server. Run: pip install 'gpubloom[skypilot]'."
    state = {"available": True, "connected": True, "problem": None, "reason": None, "account": ID}
    items = [
        {**state, "name": "digitalocean"},
        {**state, "name": "skypilot", "available": False, "reason": reason},
        {**state, "name": "modal", "problem": f"Modal does not accept the credentials of {OTHER_ID}."},
    ]
    _answer(monkeypatch, {"items": items, "storage": {"ready": False, "reason": reason}})
    return _bloom("providers", "list"), ["digitalocean", ID, f"{OTHER_ID}."]


def machines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[list[str], list[str]]:
    from gpubloom.cli.machines import _lines

    shown = _lines(MACHINE, "offline", datetime(2026, 11, 16, 12, 34, 56, tzinfo=UTC), 12_345)
    monkeypatch.setattr("gpubloom.cli.machines._in_database", lambda work: [shown])
    return _bloom("server", "machines", "list"), [MACHINE, "2026-11-16 12:34:56 UTC", "12345 jobs"]


def datasets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[list[str], list[str]]:
    items = [{"id": ID, "status": "inspecting", "name": NAME, "report": {"rows": 123_456_789}}]
    _answer(monkeypatch, {"items": items, "total": 1})
    return _bloom("datasets", "list"), [ID, "inspecting", "123,456,789"]


@pytest.mark.parametrize(
    "show", [jobs, offers, plan, models, compare, watch, projects, providers, machines, datasets]
)
def test_a_table_fits_80_columns_and_cuts_no_number_and_no_id(
    show: Callable[[pytest.MonkeyPatch, Path], tuple[list[str], list[str]]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    lines, whole = show(monkeypatch, tmp_path)
    assert max(map(len, lines)) <= WIDTH, "\n".join(lines)
    for text in whole:
        assert any(text in line for line in lines), f"{text} is cut in:\n" + "\n".join(lines)
    assert not any("…" in line for line in lines)


@pytest.mark.parametrize("show", [jobs, projects, datasets])
def test_a_long_name_wraps_and_is_complete(
    show: Callable[[pytest.MonkeyPatch, Path], tuple[list[str], list[str]]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    lines, _ = show(monkeypatch, tmp_path)
    shown = "".join("".join(lines).split())
    for word in NAME.split():
        assert word in shown


def test_parts_stay_whole_when_they_wrap() -> None:
    assert wrap_parts(["one two", "three", "four"], 15, indent="  ") == ["  one two", "  three · four"]
    assert wrap_parts([], 15) == []
