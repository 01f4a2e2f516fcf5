"""Comparisons: what differs, by names instead of paths; what came of it; nobody else's jobs."""

import asyncio
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from gpubloom.cli.compare import compare_directories
from gpubloom.plan import TrainConfig
from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.db.database import Database
from gpubloom.server.jobs.ingest import Batch, store_points
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.traincard import Reporter, RunEvent, load_latest, read_all
from gpubloom.traincard.number_encoding import plain
from tests.server.installation import Browser, Installation
from tests.server.jobs.recorded import START, add_dataset, add_job, add_model


def _config(**changes: Any) -> dict[str, Any]:
    return TrainConfig.model_validate(
        {"data": {"train_path": "/data/a.txt"}, "device": "cpu", **changes}
    ).model_dump(mode="json")


def _report(installation: Installation, job: TrainingJob, series: str, values: list[float]) -> None:
    events = [
        RunEvent(1, 0, step, START, "metric", step, {"values": {series: value}})
        for step, value in enumerate(values, start=1)
    ]
    _ingest(installation, job, events)


def _ingest(installation: Installation, job: TrainingJob, events: list[RunEvent]) -> None:
    async def store() -> None:
        database = Database(installation.database_url)
        async with database.write() as session:
            await store_points(session, await session.get_one(TrainingJob, job.id), Batch(events))
        await database.close()

    asyncio.run(store())


def test_differences_are_those_that_act(installation: Installation, member: User, ada: Browser) -> None:
    first = add_job(installation, member, config=_config(name="one", epochs=2))
    # The default said aloud is no difference.
    second = add_job(installation, member, config=_config(name="two", epochs=3, learning_rate=1e-3))
    answer = ada.get("/api/runs/compare", params={"run": [str(first.id), str(second.id)]})
    assert answer.status_code == 200, answer.text
    assert answer.json()["differences"] == [{"path": "epochs", "values": [2, 3]}]
    assert [run["run_id"] for run in answer.json()["outcomes"]] == [str(first.id), str(second.id)]


def test_a_script_without_a_config_differs_in_no_setting(
    installation: Installation, member: User, ada: Browser
) -> None:
    script = add_job(installation, member, kind="script", config={})
    first = add_job(installation, member, config=_config(epochs=2))
    second = add_job(installation, member, config=_config(epochs=3))
    answer = ada.get(
        "/api/runs/compare", params={"run": [str(job.id) for job in (script, first, second)]}
    ).json()
    assert answer["differences"] == [{"path": "epochs", "values": [None, 2, 3]}]
    assert {"path": "seed", "values": [0]} in answer["equal"]
    other = add_job(installation, member, kind="script", config={})
    alone = ada.get("/api/runs/compare", params={"run": [str(script.id), str(other.id)]}).json()
    assert (alone["differences"], alone["equal"]) == ([], [])


def test_datasets_and_models_are_compared_by_their_names(
    installation: Installation, member: User, ada: Browser
) -> None:
    model = add_model(installation, member)
    jobs = []
    for name in ("first chats", "second chats"):
        dataset = add_dataset(installation, member, name=name)
        config = _config(
            method="lora",
            model={"path": str(installation.home / f"models/{model.id}")},
            data={
                "kind": "examples",
                "train_path": str(installation.home / f"datasets/{dataset.id}/data.jsonl"),
            },
        )
        jobs.append(add_job(installation, member, config=config, dataset_id=dataset.id, model_id=model.id))
    plain = add_job(installation, member, config=_config())
    two = ada.get("/api/runs/compare", params={"run": [str(job.id) for job in jobs]}).json()
    assert two["differences"] == [{"path": "data.train_path", "values": ["first chats", "second chats"]}]
    three = ada.get("/api/runs/compare", params={"run": [str(job.id) for job in [*jobs, plain]]}).json()
    found = {each["path"]: each["values"] for each in three["differences"]}
    assert found["model.path"] == ["tiny-llama", "tiny-llama", None]
    assert found["method"] == ["lora", "lora", "full"]
    assert found["lora.rank"] == [16, 16, None]
    assert str(installation.home) not in str(three["differences"])


def test_outcomes_tell_the_end_and_the_best(installation: Installation, member: User, ada: Browser) -> None:
    begun = now() - timedelta(minutes=5)
    values = {"train/loss": {"step": 4, "value": 0.5}, "train/tokens_seen": {"step": 4, "value": 400}}
    job = add_job(
        installation,
        member,
        status="completed",
        start_time=begun,
        end_time=begun + timedelta(seconds=90),
        summary={"step": 4, "values": values, "facts": {"compiled": True}},
    )
    _report(installation, job, "eval/loss", [2.0, 1.0, 1.5])
    _report(installation, job, "train/tokens_per_second", [100.0, 300.0])
    other = add_job(installation, member)
    outcome, nothing = ada.get("/api/runs/compare", params={"run": [str(job.id), str(other.id)]}).json()[
        "outcomes"
    ]
    assert (outcome["final"], outcome["tokens"]) == ({"train/loss": 0.5, "eval/loss": 1.5}, 400)
    assert (outcome["best_eval_loss"], outcome["best_step"]) == (1.0, 2)
    assert (outcome["seconds"], outcome["tokens_per_second"], outcome["steps"]) == (90, 200, 4)
    assert (nothing["final"], nothing["best_eval_loss"], nothing["tokens_per_second"]) == ({}, None, None)


def test_only_runs_of_ones_own_two_to_fifty_of_them(
    installation: Installation, member: User, ada: Browser
) -> None:
    mine = add_job(installation, member)
    theirs = add_job(installation, installation.add_user("Eve"))
    task = add_job(installation, member, kind="evaluate")
    for status, ids in (
        (404, [mine.id, theirs.id]),
        (404, [mine.id, uuid4()]),
        (422, [mine.id]),
        (422, [mine.id, mine.id]),
        (404, [mine.id, task.id]),
        (422, [uuid4() for _ in range(51)]),
        (422, []),
    ):
        answer = ada.get("/api/runs/compare", params={"run": [str(each) for each in ids]})
        assert answer.status_code == status, answer.text


def test_a_final_value_that_is_no_number_is_named(
    installation: Installation, member: User, ada: Browser
) -> None:
    values = {"train/loss": {"step": 3, "value": "NaN"}, "eval/loss": {"step": 3, "value": "Infinity"}}
    jobs = [add_job(installation, member, summary={"values": values}) for _ in range(2)]
    answer = ada.get("/api/runs/compare", params={"run": [str(job.id) for job in jobs]})
    assert answer.status_code == 200, answer.text
    assert answer.json()["outcomes"][0]["final"] == {"train/loss": "NaN", "eval/loss": "Infinity"}


def _run(folder: Path, attempts: list[list[tuple[float, float, float]]], **config: Any) -> Path:
    """A run directory of several attempts, by training loss, evaluation loss and tokens/s of each step."""
    folder.mkdir()
    (folder / "config.json").write_text(TrainConfig.model_validate(_config(**config)).to_json())
    for steps in attempts:
        with Reporter(folder) as reporter:
            for step, (loss, evaluation, speed) in enumerate(steps, start=1):
                reporter.metrics(
                    {
                        "train/loss": loss,
                        "eval/loss": evaluation,
                        "train/tokens_per_second": speed,
                        "train/tokens_seen": 64 * step,
                    },
                    step=step,
                )
                reporter.progress(step, len(steps))
            reporter.finish("completed")
    return folder


def _job_of(installation: Installation, member: User, folder: Path) -> TrainingJob:
    """The job whose run directory that is, as the worker would have recorded it."""
    latest, events = load_latest(folder), list(read_all(folder))
    assert latest is not None
    job = add_job(
        installation,
        member,
        name=folder.name,
        status="completed",
        config=TrainConfig.read(folder / "config.json").model_dump(mode="json"),
        summary={"step": latest["step"], "values": plain(latest["values"])},
        start_time=datetime.fromtimestamp(min(event.t for event in events), UTC),
        end_time=datetime.fromtimestamp(max(event.t for event in events), UTC),
    )
    _ingest(installation, job, events)
    return job


def test_the_server_and_the_command_line_give_the_same_numbers_for_the_same_runs(
    installation: Installation, member: User, ada: Browser, tmp_path: Path
) -> None:
    steady = [(3.0, 2.5, 100.0), (2.0, 1.5, 200.0), (1.0, 1.75, 600.0)]
    diverging = [(3.0, 2.0, 50.0), (math.nan, math.inf, math.nan), (math.inf, math.nan, 70.0)]
    folders = [
        _run(tmp_path / "resumed", [steady[:2], steady], epochs=2),
        _run(tmp_path / "diverged", [diverging], epochs=3),
    ]
    here = compare_directories(folders, "train/loss")
    jobs = [_job_of(installation, member, folder) for folder in folders]
    there = ada.get("/api/runs/compare", params={"run": [str(job.id) for job in jobs]}).json()

    assert [{"path": each.path, "values": list(each.values)} for each in here.differences] == there[
        "differences"
    ]
    for run, outcome in zip(here.runs, there["outcomes"], strict=True):
        final = {name: float(value) for name, value in outcome["final"].items()}
        assert run.figures == {
            "final train loss": pytest.approx(final["train/loss"], nan_ok=True),
            "final eval loss": pytest.approx(final["eval/loss"], nan_ok=True),
            "best eval loss": outcome["best_eval_loss"],
            "steps": outcome["steps"],
            "tokens": outcome["tokens"],
            "mean tokens/s": pytest.approx(outcome["tokens_per_second"]),
            # A card shows tenths of a second.
            "seconds": pytest.approx(outcome["seconds"], abs=0.1),
        }
    assert here.runs[0].figures["mean tokens/s"] == pytest.approx((100 + 200 + 100 + 200 + 600) / 5)
    assert here.runs[1].figures["mean tokens/s"] == pytest.approx(60.0)
