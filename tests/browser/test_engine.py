"""Planning for a large GPU in the form, and predicted beside measured on the job page.

The machine and the run are rows in the database: what a worker on such a machine would have written.
"""

import json
import math
import re
from uuid import uuid4

import pytest
from playwright.sync_api import Page, expect
from sqlalchemy import select

from gpubloom.plan import Hardware, Plan, TrainConfig, named_shape, plan
from gpubloom.server.accounts.tables import User
from gpubloom.server.clock import now
from gpubloom.server.jobs.tables import MetricPoint, MetricSeries, TrainingJob, Worker
from gpubloom.server.projects.tables import Project
from tests.browser.conftest import EVERY_SIZE, PHONE, NewPage, axe_violations
from tests.browser.people import create_project, open_section, open_tab, set_up
from tests.live_server import LiveServer
from tests.server.installation import Installation

H200 = "H200, 1536 GB host"
STEPS = 120


def _database(server: LiveServer) -> Installation:
    return Installation(server.home, f"sqlite:///{server.home / 'bloom.db'}")


def add_machine(server: LiveServer) -> None:
    hardware = Hardware.parse(H200).model_dump(mode="json")
    _database(server).add(Worker(id=uuid4(), name="big:1", hardware=hardware))


def add_streamed_job(server: LiveServer) -> str:
    """A job of a 7B model that streams, 120 steps in; returns the address of its page."""
    database = _database(server)
    config = TrainConfig.model_validate(
        {"memory": "stream", "batch_size": 8, "model": {"context_length": 1024}, "device": "cuda"}
    )
    found = plan(config, Hardware.parse(H200), shape=named_shape("qwen2.5-7b"))
    with database.session() as session:
        user, project = session.scalars(select(User)).one(), session.scalars(select(Project)).one()
        values = _last_values(found)
        job = TrainingJob(
            id=uuid4(),
            project_id=project.id,
            user_id=user.id,
            name="Seven billion",
            status="paused",
            config=config.model_dump(mode="json"),
            plan=found.model_dump(mode="json"),
            start_time=now(),
            attempt=1,
            summary={
                "step": STEPS,
                "total_steps": 400,
                "values": {name: {"value": value} for name, value in values.items()},
                "facts": _facts(found),
            },
        )
        session.add(job)
        session.flush()
        for number, (name, last) in enumerate(values.items()):
            series = MetricSeries(job_id=job.id, name=name, rank=0, axis="step")
            session.add(series)
            session.flush()
            for step in range(1, STEPS + 1):
                value = last * (1 + 0.04 * math.sin(step * (number + 2) / 5) * (1 - step / STEPS))
                if name == "train/loss":
                    value += 5 * math.exp(-step / 30)
                session.add(
                    MetricPoint(
                        series_id=series.id, x=step, attempt=1, seq=step, time=1e9 + step, value=value
                    )
                )
        return f"/projects/{project.id}/jobs/{job.id}"


def _facts(found: Plan) -> dict[str, object]:
    assert found.host is not None
    return {
        "placement": found.placement_text,
        "planned_step_seconds": found.step_seconds,
        "planned_gpu_bytes": found.gpu_reserved_bytes,
        "planned_host_bytes": found.host.total,
        "tokens_per_step": found.tokens_per_step,
        "host_optimizer": "fused AdamW in C, 15 threads",
        "compiled": True,
    }


def _last_values(found: Plan) -> dict[str, float]:
    """A tenth slower than planned, in three percent more memory."""
    seconds = found.step_seconds * 1.1
    assert found.gpu_reserved_bytes is not None
    assert found.host is not None
    return {
        "train/loss": 2.1,
        "train/tokens_per_second": found.tokens_per_step / seconds,
        "engine/computing_seconds": seconds * 0.5,
        "engine/waiting_for_weights_seconds": seconds * 0.2,
        "engine/waiting_for_optimizer_seconds": seconds * 0.3,
        "engine/link_in_gb_per_second": 38.0,
        "engine/link_out_gb_per_second": 21.0,
        "engine/tflops": 210.0,
        "engine/mfu": 0.29,
        "engine/gpu_reserved_bytes": found.gpu_reserved_bytes * 1.03,
        "engine/host_bytes": found.host.total * 0.99,
    }


def _wider_than_the_screen(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth > window.innerWidth"))


def _open_folds(page: Page) -> None:
    for title in ("Custom model sizes", "Engine: memory"):
        page.get_by_text(title).click()


@pytest.mark.long
@EVERY_SIZE
def test_the_form_plans_for_a_large_gpu_and_mends_what_does_not_fit(
    new_page: NewPage, own_server: LiveServer, size: tuple[int, int]
) -> None:
    page = new_page(size)
    set_up(page, own_server)
    project = create_project(page, "Seven", "7", "corpus.txt")
    (own_server.home / "uploads/corpus.txt").write_text("To be, or not to be. " * 2000)
    add_machine(own_server)
    page.goto(f"{project}/jobs/new")
    card = page.get_by_label("Plan")
    page.get_by_label("Model", exact=True).select_option("8b")
    _open_folds(page)
    page.get_by_label("Model placement").select_option("stream")
    page.get_by_label("GPU memory limit").fill("40")
    expect(card).to_contain_text(re.compile(r"GPU memory[\d.]+ GB / 40 GB.*Host memory", re.DOTALL))
    if size == PHONE:
        open_section(page, "Memory, speed and steps")
    expect(card.get_by_text("Limited by")).to_be_visible()
    expect(card.get_by_role("img")).to_have_attribute("aria-label", _mentions("forward", "link", "host"))
    assert axe_violations(page) == []
    assert not _wider_than_the_screen(page)

    page.get_by_label("GPU memory limit").fill("")
    page.get_by_label("Model", exact=True).select_option("70b")
    page.get_by_label("Model placement").select_option("resident")
    expect(card.get_by_text("This job cannot run with these settings")).to_be_visible()
    expect(card.get_by_text("Settings that would fit")).to_be_visible()
    assert axe_violations(page) == []
    card.get_by_role("button", name="Apply: Model placement: Automatic").click()
    expect(card.get_by_text("This job fits")).to_be_visible()
    expect(page.get_by_label("Model placement")).to_have_value("auto")

    page.get_by_role("radio", name="QLoRA").check(force=True)
    page.get_by_label("LoRA rank").fill("8")
    page.get_by_label("Target modules").fill("q_proj, v_proj")
    expect(card.get_by_text("in 4 bits")).to_be_visible()
    page.get_by_role("tab", name="JSON").click()
    written = json.loads(page.get_by_label("Training config").input_value())
    assert (written["method"], written["lora"]) == ("qlora", {"rank": 8, "targets": ["q_proj", "v_proj"]})
    written["memory"] = "stream"
    page.get_by_label("Training config").fill(json.dumps(written))
    page.get_by_role("tab", name="Form").click()
    _open_folds(page)
    expect(page.get_by_label("Model placement")).to_have_value("stream")

    page.get_by_label("Model", exact=True).select_option(label="Model folder…")
    expect(card.get_by_text("Enter the path of the model folder.")).to_be_visible()
    page.get_by_label("Model folder").fill("/etc")
    expect(card.get_by_text("The server may not read this path.")).to_be_visible()
    assert axe_violations(page) == []
    assert not _wider_than_the_screen(page)


def _mentions(*words: str) -> re.Pattern[str]:
    return re.compile(".*".join(words))


@pytest.mark.long
@EVERY_SIZE
def test_a_job_shows_what_was_planned_beside_what_is_measured(
    new_page: NewPage, own_server: LiveServer, size: tuple[int, int]
) -> None:
    page = new_page(size)
    set_up(page, own_server)
    create_project(page, "Seven", "7")
    page.goto(add_streamed_job(own_server))
    compared = page.get_by_role("table", name="Planned and measured")
    expect(compared.get_by_role("row", name="GPU memory")).to_contain_text("+3 %")
    expect(compared.get_by_role("row", name="Host memory")).to_contain_text("−1 %")
    expect(compared.get_by_role("row", name="Step")).to_contain_text("+10 %")
    open_tab(page, "System")
    expect(page.get_by_text("waiting for the optimizer 30 %")).to_be_visible()
    page.get_by_role("button", name="Show 3 more charts").first.click()
    engine = page.get_by_label("Engine charts")
    for title in ("Step time by activity", "Host–GPU transfer speed", "TFLOP/s", "Memory used"):
        expect(engine.get_by_role("heading", name=title)).to_be_visible()
    assert axe_violations(page) == []
    assert not _wider_than_the_screen(page)
