"""`bloom runs compare`: config differences, results and one chart, of run directories and of jobs."""

import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpubloom.cli.app import app
from gpubloom.cli.chart import Line, draw_together, short
from gpubloom.cli.compare import compare_jobs
from gpubloom.plan import TrainConfig
from gpubloom.traincard import Reporter
from tests.errors import printed
from tests.live_server import live_server
from tests.server.installation import Installation
from tests.server.jobs.recorded import add_job


def _run(folder: Path, losses: list[float], **config: object) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(TrainConfig.model_validate(config).to_json())
    with Reporter(folder) as reporter:
        for step, loss in enumerate(losses, start=1):
            reporter.metrics({"train/loss": loss, "tokens_seen": 10 * step}, step=step)
            reporter.progress(step, len(losses))
        reporter.metrics({"eval/loss": min(losses) + 1}, step=len(losses))
        reporter.finish("completed")
    return folder


def _bloom(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["runs", "compare", *arguments], env={"COLUMNS": "100"})
    return result.exit_code, result.output


def test_run_directories_are_compared(tmp_path: Path) -> None:
    first = _run(tmp_path / "first", [3.0, 2.0, 1.0], name="a", epochs=2)
    second = _run(tmp_path / "second", [3.0, 2.5], name="b", epochs=3, method="lora", model={"path": "/m"})
    code, text = _bloom(str(first), str(second))
    assert code == 0, text
    rows = {line.split("  ")[0].strip(): line.split() for line in text.splitlines() if line.strip()}
    assert rows["epochs"][-2:] == ["2", "3"]
    assert rows["method"][-2:] == ["full", "lora"]
    assert rows["learning_rate"][-2:] == ["0.001", "0.0002"], "as they act, not as they were written"
    assert rows["final train loss"][-2:] == ["1", "2.5"]
    assert rows["best eval loss"][-2:] == ["2", "3.5"]
    assert rows["steps"][-2:] == ["3", "2"]
    assert "seed" not in rows
    assert "⠀" < max(text) < "⣿", "a chart is drawn"
    answer = json.loads(_bloom(str(first), str(second), "--json")[1])
    assert {"path": "epochs", "values": [2, 3]} in answer["differences"]
    assert answer["runs"][1]["figures"]["tokens"] == 20


def test_a_metric_that_no_run_has_is_named_in_place_of_an_empty_chart(tmp_path: Path) -> None:
    first, second = _run(tmp_path / "first", [3.0], name="a"), _run(tmp_path / "second", [2.0], name="b")
    code, text = _bloom(str(first), str(second), "--series", "train/los")
    assert code == 0, text
    last = text.splitlines()[-1]
    assert last.startswith("None of these runs has values of train/los. Metrics: ")
    assert "train/loss" in last


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["one"], "invalid_option"),
        (["x"] * 2, "same_run_twice"),
        (["missing-a", "missing-b"], "run_not_found"),
        (["missing", "6f1b1f3e-8f5f-4b8e-9a53-0d9a3f1c2b4d"], "invalid_option"),
    ],
)
def test_what_cannot_be_compared_is_told_in_a_sentence(arguments: list[str], error: str) -> None:
    code, text = _bloom(*arguments)
    assert (code, printed(text)) == (2, [error])


@pytest.mark.long
def test_jobs_of_a_server_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with live_server(tmp_path / "home") as server:
        installation = Installation(server.home, f"sqlite+aiosqlite:///{server.home / 'bloom.db'}")
        ada = installation.add_user("Ada")
        token, _ = installation.add_token(ada)
        jobs = [
            add_job(installation, ada, name=name, config=config.model_dump(mode="json"))
            for name, config in (("one", TrainConfig(epochs=2)), ("two", TrainConfig(epochs=3)))
        ]
        monkeypatch.setenv("BLOOM_SERVER", server.address)
        monkeypatch.setenv("BLOOM_TOKEN", token)
        code, text = _bloom(*(str(job.id) for job in jobs))
    assert code == 0, text
    assert "epochs" in text
    assert "None of these runs has values of train/loss." in text


def test_curves_in_one_chart_keep_whose_they_are() -> None:
    rising, falling = Line([[(0, 0.0), (10, 1.0)]]), Line([[(0, 1.0), (10, 0.0)]])
    rows = draw_together([rising, falling], 40, 6)
    assert [len("".join(text for text, _ in row)) for row in rows] == [40] * 6
    top = [owner for text, owner in rows[0] if text.strip() and owner is not None]
    assert top == [1, 0], "the falling one begins at the top, the rising one ends there"


def test_a_run_that_diverged_is_compared_by_its_finite_evaluations(tmp_path: Path) -> None:
    good = _run(tmp_path / "good", [3.0, 2.0], name="a")
    bad = _run(tmp_path / "bad", [3.0, math.nan], name="b")
    with Reporter(bad) as reporter:
        reporter.metrics({"train/loss": math.inf, "eval/loss": math.nan}, step=3)
        reporter.metrics({"eval/loss": 7.0}, step=4)
        reporter.metrics({"eval/loss": math.nan}, step=5)
    code, text = _bloom(str(good), str(bad))
    assert code == 0, text
    rows = {line.split("  ")[0].strip(): line.split() for line in text.splitlines() if line.strip()}
    assert rows["final train loss"][-2:] == ["2", "Infinity"]
    assert rows["final eval loss"][-2:] == ["3", "NaN"]
    assert rows["best eval loss"][-2:] == ["3", "4"]


def test_a_job_of_a_server_whose_final_loss_is_no_number_is_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = {"id": "1", "name": "n", "status": "failed"}
    figures = dict.fromkeys(("best_eval_loss", "steps", "tokens", "tokens_per_second", "seconds"))
    outcome = {**job, "final": {"train/loss": "NaN"}, **figures}
    answer = {"outcomes": [outcome], "differences": [], "fact_differences": []}
    monkeypatch.setattr(
        "gpubloom.cli.compare.call", lambda *_, query=None: {"series": []} if query else answer
    )
    (run,) = compare_jobs(["1"], "train/loss").runs
    assert short(run.figures["final train loss"] or 0.0) == "NaN"
