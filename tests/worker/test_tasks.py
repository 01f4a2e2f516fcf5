"""A worker runs tasks about models: during trainings, with answers, tried again, making room."""

import asyncio
import os
from datetime import timedelta
from typing import Any

import pytest

from gpubloom.server.accounts.hub_tokens import HubToken
from gpubloom.server.playground.endpoint import note_use
from gpubloom.server.security.secrets import Vault
from gpubloom.worker import preemption
from tests.worker.machine import Machine

# What differs between databases is in the other tests.
on_sqlite = pytest.mark.parametrize("kind", ["sqlite"], indirect=True)


@pytest.mark.long
def test_a_task_runs_beside_a_training_and_its_answer_is_stored_with_its_end(machine: Machine) -> None:
    training = machine.add_job(toy={"hold_at": 3})
    answer = {"perplexity": {"tuned": {"loss": 1.5}}, "broken": float("nan"), "text": "a\0b\ud800"}
    first = machine.add_task("evaluate", toy={"hold": True, "result": answer})
    second = machine.add_task("export", toy={"result": 5_000_000})

    async def scenario() -> None:
        async with machine.worker():
            await machine.holds(training, 3)
            await machine.began(first)
            # One during a training, not any number.
            assert (await asyncio.to_thread(machine.job, second)).status == "queued"
            machine.let_go(first)
            await machine.until(second, "completed", "failed")
            assert (await asyncio.to_thread(machine.job, training)).status == "running"
            machine.let_go(training)
            await machine.until(training, "completed")

    asyncio.run(scenario())
    job = machine.job(first)
    assert (job.status, job.attempt, job.error_message) == ("completed", 1, None)
    assert job.result == {"perplexity": {"tuned": {"loss": 1.5}}, "broken": None, "text": "ab?"}
    assert machine.seen(first)["devices"] == "", "a task without a GPU sees none"
    notes = machine.job(second).result
    assert notes is not None
    assert "5.0 MB" in notes["notes"][0]


@pytest.mark.long
def test_a_killed_task_begins_anew_and_a_wrong_one_fails_in_its_own_words(machine: Machine) -> None:
    export = machine.add_task("export", toy={"hold": True})

    async def scenario() -> None:
        async with machine.worker():
            await machine.began(export)
            await asyncio.to_thread(machine.kill_training, export)
            await machine.began(export, attempt=2)
            machine.let_go(export)
            await machine.until(export, "completed", "failed")
            wrong = await asyncio.to_thread(
                lambda: machine.add_task("evaluate", toy={"fails": "There is no file x."})
            )
            await machine.until(wrong, "failed")
            job = await asyncio.to_thread(machine.job, wrong)
            assert (job.attempt, job.error_code, job.error_message) == (
                1,
                "task_failed",
                "There is no file x.",
            )

    asyncio.run(scenario())
    assert machine.job(export).result == {"attempt": 2}


@pytest.mark.long
@on_sqlite
def test_a_task_that_is_killed_again_and_again_fails(machine: Machine) -> None:
    job_id = machine.add_task("evaluate", toy={"hold": True}, max_attempts=2)

    async def scenario() -> None:
        async with machine.worker():
            for attempt in (1, 2):
                await machine.began(job_id, attempt)
                await asyncio.to_thread(machine.kill_training, job_id)
            await machine.until(job_id, "failed")

    asyncio.run(scenario())
    job = machine.job(job_id)
    assert (job.error_code, job.result) == ("too_many_attempts", None)
    assert "This happened 2 times in a row." in (job.error_message or "")


@on_sqlite
def test_an_export_goes_on_while_its_worker_is_replaced(machine: Machine) -> None:
    job_id = machine.add_task("export", toy={"hold": True})

    async def scenario() -> None:
        async with machine.worker():
            await machine.began(job_id)
        machine.let_go(job_id)
        async with machine.worker():
            await machine.until(job_id, "completed", "failed")

    asyncio.run(scenario())
    job = machine.job(job_id)
    assert (job.status, job.attempt, job.result) == ("completed", 1, {"attempt": 1})


def test_a_playground_outlives_its_worker_and_completes_when_nobody_asks(machine: Machine) -> None:
    job_id = machine.add_task("serve")
    serve_file = machine.run_dir(job_id) / "serve.json"

    async def scenario() -> None:
        async with machine.worker():
            await machine.began(job_id)
        assert serve_file.exists(), "the process goes on without a worker"
        async with machine.worker():
            await machine.when(job_id, lambda job: job.lease_token is not None)
            machine.let_go(job_id)
            await machine.until(job_id, "completed", "failed")

    asyncio.run(scenario())
    job = machine.job(job_id)
    assert (job.status, job.attempt) == ("completed", 1)
    assert not serve_file.exists(), "its token is of no use any more"


@pytest.mark.long
@on_sqlite
def test_a_playground_makes_room_for_a_task_at_once(machine: Machine) -> None:
    playground = machine.add_task("serve")

    async def scenario() -> None:
        async with machine.worker():
            await machine.began(playground)
            note_use(machine.run_dir(playground))
            evaluation = await asyncio.to_thread(machine.add_task, "evaluate")
            await machine.until(evaluation, "completed", "failed")

    asyncio.run(scenario())
    job = machine.job(playground)
    assert (job.status, job.error_code) == ("cancelled", "gave_way")
    assert job.error_message == "The model was unloaded because another job needed its device."


@pytest.mark.long
@on_sqlite
def test_a_playground_makes_room_for_another_only_when_it_was_left_alone(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preemption, "LOOK_EVERY_SECONDS", 0.1)
    make, looks = preemption.Preemption._make, 0

    async def count_looks(*arguments: Any) -> None:
        nonlocal looks
        await make(*arguments)
        looks += 1

    monkeypatch.setattr(preemption.Preemption, "_make", count_looks)
    first = machine.add_task("serve")

    async def scenario() -> None:
        async with machine.worker():
            await machine.began(first)
            note_use(machine.run_dir(first))
            second = await asyncio.to_thread(machine.add_task, "serve")
            before = looks
            while looks < before + 3:
                await asyncio.sleep(0.05)
            assert (await asyncio.to_thread(machine.job, first)).status == "running"
            monkeypatch.setattr(preemption, "LEFT_ALONE", timedelta(0))
            await machine.began(second)
            machine.let_go(second)
            await machine.until(second, "completed")

    asyncio.run(scenario())
    assert machine.job(first).status == "cancelled"


@pytest.mark.long
def test_a_training_gets_the_gpu_that_a_playground_holds(machine: Machine) -> None:
    playground = machine.add_task("serve", gpus=1)

    async def scenario() -> None:
        async with machine.worker("GPU-a"):
            await machine.began(playground)
            assert machine.seen(playground)["devices"] == "GPU-a"
            # One without a GPU has a slot of its own, and nothing is preempted.
            aside = await asyncio.to_thread(machine.add_task, "evaluate")
            await machine.until(aside, "completed")
            assert (await asyncio.to_thread(machine.job, playground)).status == "running"
            training = await asyncio.to_thread(lambda: machine.add_job(toy={"steps": 3}, gpus=1))
            await machine.until(training, "completed", "failed")
            assert (await asyncio.to_thread(machine.job, training)).status == "completed"

    asyncio.run(scenario())
    assert machine.job(playground).error_code == "gave_way"


@pytest.mark.long
@on_sqlite
def test_a_job_for_two_gpus_gets_both_and_one_for_one_leaves_the_other(machine: Machine) -> None:
    first = machine.add_task("serve", gpus=1)

    async def scenario() -> None:
        async with machine.worker("GPU-a", "GPU-b"):
            await machine.began(first)
            second = await asyncio.to_thread(lambda: machine.add_task("evaluate", gpus=1))
            await machine.until(second, "completed")
            seen = {machine.seen(first)["devices"], machine.seen(second)["devices"]}
            assert seen == {"GPU-a", "GPU-b"}
            # Both are needed, so whoever only talks to a model makes room.
            both = await asyncio.to_thread(lambda: machine.add_task("evaluate", gpus=2))
            await machine.until(both, "completed")
            assert machine.seen(both)["devices"] == "GPU-a,GPU-b"

    asyncio.run(scenario())
    assert machine.job(first).error_code == "gave_way"


@pytest.mark.long
@on_sqlite
def test_a_push_finds_its_owners_token_in_a_file_that_is_gone_afterwards(machine: Machine) -> None:
    secret = "hf_verysecretindeed"
    context = f"hub_token:{machine.user.id}"
    sealed = Vault.of(machine.settings.home).seal(secret, context)
    machine.installation.add(HubToken(user_id=machine.user.id, sealed=sealed))
    job_id = machine.add_task("export", config={"hub": {"repository": "ada/tuned", "private": True}})
    without = machine.add_task("export")

    async def scenario() -> None:
        async with machine.worker():
            await machine.until(job_id, "completed", "failed")
            await machine.until(without, "completed", "failed")

    asyncio.run(scenario())
    seen = machine.seen(job_id)
    assert (seen["token"], seen["token_mode"]) == (secret, "0o600")
    assert machine.seen(without)["token"] is None
    (machine.run_dir(job_id) / "seen-1.json").unlink()
    for folder, _, names in os.walk(machine.run_dir(job_id)):
        assert "hub-token" not in names
        for name in names:
            assert secret.encode() not in (machine.run_dir(job_id) / folder / name).read_bytes(), name
    assert secret not in machine.installation.everything_stored()


@pytest.mark.long
@on_sqlite
def test_a_cancelled_task_stops_and_a_resumed_one_answers_anew(machine: Machine) -> None:
    job_id = machine.add_task("evaluate", toy={"hold": True})

    async def scenario() -> None:
        async with machine.worker():
            await machine.began(job_id)
            await machine.change(job_id, status="cancelling", want="cancel")
            await machine.until(job_id, "cancelled")
            await machine.change(job_id, status="queued", want="run")
            await machine.began(job_id, attempt=2)
            machine.let_go(job_id)
            await machine.until(job_id, "completed", "failed")

    asyncio.run(scenario())
    assert machine.job(job_id).result == {"attempt": 2}
