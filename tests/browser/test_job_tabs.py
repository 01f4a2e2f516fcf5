"""The job page in tabs: what stands where, how tall it is, and that the address knows the tab.

The run is made of rows in the database: a long one, with everything that a job page can show.
"""

import math
import re
from uuid import UUID, uuid4

import pytest
from playwright.sync_api import expect
from sqlalchemy import select

from gpubloom.plan import Hardware, TrainConfig, named_shape, plan
from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.jobs.tables import Checkpoint, MetricPoint, MetricSeries, TrainingJob
from gpubloom.server.projects.tables import Project
from tests.browser.conftest import DESKTOP, PHONE, NewPage, flaws_on_every_screen
from tests.browser.people import choose_action, create_project, open_tab, set_up
from tests.live_server import LiveServer
from tests.server.installation import Installation

TABS = ("Overview", "Charts", "Samples", "Logs", "Checkpoints", "Evaluate", "Config", "System")
TALLEST = {DESKTOP: 1_600, PHONE: 3_400}
STEPS, POINTS = 2_860, 60
PROMPTS = [
    f"I was charged twice for order {number}. Can I get one of the charges back?" for number in range(8)
]
TELEMETRY = {
    "gpu/0/utilization": 97.0,
    "gpu/0/memory_used": 61e9,
    "gpu/0/temperature": 64.0,
    "gpu/0/power": 620.0,
    "gpu/0/fan": 40.0,
    "gpu/0/clock": 1_900.0,
    "cpu/utilization": 31.0,
    "ram/used": 90e9,
    "process/ram": 40e9,
    "disk/read": 3e6,
    "disk/written": 1e6,
    "network/received": 5e4,
    "network/sent": 7e4,
}
METRICS = {
    "train/loss": 0.9184,
    "eval/loss": 1.342,
    "eval/perplexity": 3.83,
    "eval/accuracy": 0.71,
    "train/learning_rate": 6.57e-5,
    "train/grad_norm": 0.71,
    "train/tokens_per_second": 9_990.0,
    "train/samples_per_second": 4.9,
    "train/step_seconds": 1.64,
    "engine/computing_seconds": 1.0,
    "engine/waiting_for_weights_seconds": 0.3,
    "engine/waiting_for_optimizer_seconds": 0.2,
    "engine/link_in_gb_per_second": 38.0,
    "engine/link_out_gb_per_second": 21.0,
    "engine/tflops": 210.0,
    "engine/mfu": 0.29,
    "engine/gpu_reserved_bytes": 61e9,
    "engine/host_bytes": 40e9,
    **{f"custom/metric_{number}": float(number) for number in range(20)},
}


def _database(server: LiveServer) -> Installation:
    return Installation(server.home, f"sqlite:///{server.home / 'bloom.db'}")


def _findings(count: int) -> list[dict[str, object]]:
    return [
        {
            "kind": "rows_unused",
            "severity": "warning",
            "sentence": f"{number},000 of 240,000 rows cannot be used: the chat template rejects them.",
            "next_step": "Merge the system messages into the first message of the user.",
        }
        for number in range(40, 40 + count)
    ]


def add_job(server: LiveServer, *, status: str = "paused", summary: dict[str, object] | None = None) -> str:
    """A tuning run with curves, telemetry, checkpoints, an evaluation and findings; returns its path."""
    config = TrainConfig.model_validate(
        {
            "method": "lora",
            "model": {"path": "/models/gemma-2-9b-it"},
            "data": {"kind": "examples", "train_path": "support-tickets-v4.jsonl"},
            "epochs": 3,
            "max_steps": 4_245,
            "eval": {"every_steps": 200},
        }
    )
    found = plan(config, Hardware.parse("H200, 1536 GB host"), shape=named_shape("qwen2.5-7b"))
    with _database(server).session() as session:
        user, project = session.scalars(select(User)).one(), session.scalars(select(Project)).one()
        job = TrainingJob(
            id=uuid4(),
            project_id=project.id,
            user_id=user.id,
            name="gemma-2-9b support v4",
            status=status,
            config=config.model_dump(mode="json"),
            plan=found.model_dump(mode="json"),
            start_time=now(),
            end_time=now(),
            attempt=2,
            summary={
                "step": STEPS,
                "total_steps": 4_245,
                "epoch": 2.02,
                "epochs": 3.0,
                "restart_count": 1,
                "resumed_from_step": 1_200,
                "values": {name: {"step": STEPS, "value": value} for name, value in METRICS.items()},
                "system": TELEMETRY,
                "facts": {f"fact_{number}": number for number in range(30)} | {"gpu/0/name": "NVIDIA H200"},
                "findings": _findings(6),
                "warnings": [{"line": f"warning {number} of the trainer " * 4} for number in range(6)],
                **(summary or {}),
            },
        )
        session.add(job)
        session.flush()
        curves = METRICS | {f"system/{name}": value for name, value in TELEMETRY.items()}
        for name, last in curves.items():
            series = MetricSeries(
                job_id=job.id, name=name, rank=0, axis="time" if name.startswith("system/") else "step"
            )
            session.add(series)
            session.flush()
            for number in range(POINTS):
                step = number * STEPS // (POINTS - 1)
                value = last * (1 + 0.03 * math.sin(number))
                if name == "eval/loss":
                    # Lowest in the middle: it rises from there on.
                    value = 1.287 + 0.000_000_2 * (step - 1_800) ** 2
                x = 1e9 + step if series.axis == "time" else step
                session.add(
                    MetricPoint(
                        series_id=series.id, x=x, attempt=1, seq=number + 1, time=1e9 + step, value=value
                    )
                )
        for number in range(12):
            session.add(
                Checkpoint(
                    id=uuid4(),
                    job_id=job.id,
                    attempt=1,
                    step=200 * (number + 1),
                    path=f"checkpoints/step-{200 * (number + 1)}",
                    size=648_000_000,
                    metrics={"eval/loss": 1.3 + abs(number - 8) / 100},
                    best=number == 8,
                    saved_at=now(),
                )
            )
        _add_evaluation(session, job, "\n" * 4_000)
        return f"/projects/{project.id}/jobs/{job.id}"


def _add_evaluation(session: object, job: TrainingJob, base_answer: str) -> UUID:
    """An evaluation with answers to eight prompts."""
    answers = [
        {"prompt": prompt, "base": base_answer, "tuned": "Sorry about the second charge. " * 6}
        for prompt in PROMPTS
    ]
    measured = {"loss": 1.914, "perplexity": 6.78, "tokens": 40_000}
    task = TrainingJob(
        id=uuid4(),
        kind="evaluate",
        parent_id=job.id,
        project_id=job.project_id,
        user_id=job.user_id,
        name="Evaluation",
        status="completed",
        config={"kind": "evaluate", "model": {"path": "model"}, "prompts": PROMPTS},
        result={
            "kind": "evaluate",
            "perplexity": {"base": measured, "tuned": measured | {"loss": 1.287, "perplexity": 3.62}},
            "prompts": answers,
            "notes": [],
        },
        start_time=now(),
        end_time=now(),
        attempt=1,
        summary={},
    )
    session.add(task)  # type: ignore[attr-defined]
    return task.id


@pytest.mark.long
@pytest.mark.timeout(600)
def test_every_tab_fits_its_screen_and_keeps_header_progress_and_findings(
    new_page: NewPage, own_server: LiveServer
) -> None:
    page = new_page()
    set_up(page, own_server)
    create_project(page, "Support assistant", "0.001", "corpus.txt")
    page.goto(add_job(own_server))
    heights: dict[tuple[str, int], int] = {}
    flaws: list[str] = []
    for name in TABS:
        open_tab(page, name)
        page.wait_for_load_state("networkidle")
        expect(page.get_by_role("heading", name="gemma-2-9b support v4", level=1)).to_be_visible()
        expect(page.get_by_role("progressbar", name="Training progress")).to_be_visible()
        expect(page.get_by_role("link", name=re.compile(r"\d+ (warnings|problems)"))).to_be_visible()
        expect(page.get_by_role("button", name="Resume", exact=True)).to_be_visible()
        flaws += flaws_on_every_screen(page)
        for size in (PHONE, DESKTOP):
            page.set_viewport_size({"width": size[0], "height": size[1]})
            # The charts are loaded by themselves and draw when they can be seen.
            page.wait_for_load_state("networkidle")
            heights[name, size[0]] = page.evaluate("document.documentElement.scrollHeight")
    assert flaws == []
    too_tall = {
        (name, width): height
        for (name, width), height in heights.items()
        if name != "Logs" and height > TALLEST[DESKTOP if width == DESKTOP[0] else PHONE]
    }
    assert too_tall == {}, heights


def _add_export(server: LiveServer, path: str) -> None:
    """The finished model of a job in twelve files, and an export of it that was tried on eight prompts."""
    job_id = UUID(path.rpartition("/")[2])
    replayed = [
        {"prompt": prompt, "before": "Sorry about the second charge. " * 6, "after": "Sorry.", "same": False}
        for prompt in PROMPTS
    ]
    with _database(server).session() as session:
        job = session.get_one(TrainingJob, job_id)
        export = TrainingJob(
            id=uuid4(),
            kind="export",
            parent_id=job.id,
            project_id=job.project_id,
            user_id=job.user_id,
            name="Export",
            status="completed",
            config={"kind": "export", "model": {"path": "model"}, "form": "merged"},
            result={"kind": "export", "form": "merged", "replay": replayed, "same": 0, "of": len(replayed)},
            start_time=now(),
            end_time=now(),
            attempt=1,
            summary={},
        )
        session.add(export)
        for owner in (job.id, export.id):
            folder = server.home / "runs" / str(owner) / "model"
            folder.mkdir(parents=True)
            for name in ("config.json", *(f"model-{number:05}.safetensors" for number in range(1, 12))):
                (folder / name).write_text("{}")


@pytest.mark.long
def test_the_checkpoints_of_a_completed_run_fit_the_screen_beside_its_model_and_export(
    new_page: NewPage, own_server: LiveServer
) -> None:
    page = new_page()
    set_up(page, own_server)
    create_project(page, "Support assistant", "0.001", "corpus.txt")
    path = add_job(own_server, status="completed")
    _add_export(own_server, path)
    page.goto(path)
    choose_action(page, "Export")
    expect(page).to_have_url(re.compile("tab=checkpoints$"))
    expect(page.get_by_text("12 files")).to_have_count(2)
    for size in (DESKTOP, PHONE):
        page.set_viewport_size({"width": size[0], "height": size[1]})
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollHeight") <= TALLEST[size]
    assert flaws_on_every_screen(page) == []
    page.get_by_text("12 files").last.click()
    expect(page.get_by_role("table", name="Model files")).to_be_visible()


@pytest.mark.long
def test_the_address_names_the_tab_and_the_back_button_returns(
    new_page: NewPage, own_server: LiveServer
) -> None:
    page = new_page()
    set_up(page, own_server)
    create_project(page, "Support assistant", "0.001", "corpus.txt")
    path = add_job(own_server)
    page.goto(path)
    open_tab(page, "Checkpoints")
    expect(page).to_have_url(f"{own_server.address}{path}?tab=checkpoints")
    open_tab(page, "Config")
    page.go_back()
    expect(page.get_by_role("table", name="Checkpoints")).to_be_visible()
    page.go_back()
    expect(page).to_have_url(f"{own_server.address}{path}")
    expect(page.get_by_role("region", name="Did it improve?")).to_be_visible()
    # A tab that somebody shares opens, and one that nobody knows is the first.
    page.goto(f"{path}?tab=system")
    expect(page.get_by_role("table", name="GPUs now")).to_be_visible()
    page.goto(f"{path}?tab=nothing")
    expect(page.get_by_role("tab", name="Overview")).to_have_attribute("aria-selected", "true")


@pytest.mark.long
def test_the_overview_answers_whether_it_improved_before_anything_else(
    new_page: NewPage, own_server: LiveServer
) -> None:
    page = new_page()
    set_up(page, own_server)
    create_project(page, "Support assistant", "0.001", "corpus.txt")
    page.goto(add_job(own_server))
    answer = page.get_by_role("region", name="Did it improve?")
    expect(answer).to_contain_text(re.compile(r"Yes, up to step 1,\d{3}"))
    expect(answer).to_contain_text("Base model")
    expect(answer).to_contain_text("Sample answers")
    findings = page.get_by_role("status").filter(has_text="Rows not used")
    expect(findings).to_contain_text("Merge the system messages")
    page.get_by_role("button", name=re.compile("^3 more$")).click()
    expect(findings.get_by_role("article")).to_have_count(7)
    # One primary action; everything else, the dangerous ones last, is in the menu.
    page.get_by_role("button", name="More actions", exact=True).click()
    items = page.get_by_role("menuitem").all_inner_texts()
    assert items[-2:] == ["Cancel", "Delete"]
    assert "Share" in items
    page.keyboard.press("Escape")
    choose_action(page, "Delete")
    expect(page.get_by_role("alertdialog")).to_contain_text("permanently removed")


@pytest.mark.long
def test_a_run_that_diverged_is_not_called_an_improvement(new_page: NewPage, own_server: LiveServer) -> None:
    page = new_page()
    set_up(page, own_server)
    create_project(page, "Rates", "0.001", "corpus.txt")
    diverged = {
        "kind": "diverging",
        "severity": "critical",
        "sentence": "train/loss rose from 7.3 to 17.",
        "next_step": "Use a lower learning rate.",
    }
    page.goto(add_job(own_server, status="completed", summary={"findings": [diverged]}))
    answer = page.get_by_role("region", name="Did it improve?")
    expect(answer).to_contain_text("No: diverging")
    expect(answer).not_to_contain_text("best")
