"""Jobs on this machine that read data by its address: a training, its evaluation, a sweep and a script.

The bucket is a real S3-compatible server on the loopback address, which the operator allowed. The jobs have
no network: the worker fetches the data with the secrets of their owner.
"""

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from gpubloom.providers.local.sandbox import why_no_sandbox
from gpubloom.server.jobs.tables import TrainingJob
from tests.server.installation import Browser, Installation
from tests.traincard_mirror.conftest import S3Server
from tests.worker.machine import Machine

pytest.importorskip("obstore")
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("s3"),
    pytest.mark.parametrize("kind", ["sqlite"], indirect=True),
]

WORDS = "to be or not to be, that is the question\n" * 200
CONFIG: dict[str, Any] = {
    "device": "cpu",
    "batch_size": 4,
    "max_steps": 6,
    "model": {"layers": 1, "heads": 2, "hidden_size": 16, "context_length": 32},
    "data": {"train_path": "s3://bucket/corpus/", "eval_fraction": 0.2},
}
SCRIPT = """\
import pathlib
for path in sorted(pathlib.Path("data").rglob("*.txt")):
    print(path.as_posix(), len(path.read_text()))
print("step 1: loss 0.5")
"""


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        for name, text in {"corpus/words.txt": WORDS, "held-out.txt": WORDS[:2_000]}.items():
            path = server.folder / "bucket" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        yield server


class Owner:
    """Somebody signed in, whose secrets open the bucket."""

    def __init__(self, machine: Machine, browser: Browser, bucket: S3Server) -> None:
        self.machine, self._browser = machine, browser
        self.secrets = bucket.credentials

    async def ask(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = await asyncio.to_thread(self._browser.request, method, f"/api{path}", json=body)
        assert answer.is_success, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def store_secrets(self, **changes: str) -> None:
        for name, value in {**self.secrets, **changes}.items():
            await self.ask("PUT", f"/secrets/{name}", {"value": value})

    async def ended(self, path: str, body: dict[str, Any]) -> TrainingJob:
        made = await self.ask("POST", path, body)
        return await self.machine.until(UUID(made.get("id") or made["job_id"]), "completed", "failed")

    async def done(self, path: str, body: dict[str, Any]) -> TrainingJob:
        job = await self.ended(path, body)
        assert job.status == "completed", f"{job.error_message}\n{self.machine.output(job.id)}"
        return job


@pytest.fixture
def machine(installation: Installation, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("BLOOM_EGRESS_ALLOW", "127.0.0.1")
    # Imports take their time on a busy machine.
    monkeypatch.setattr("tests.worker.machine.TIMEOUT_SECONDS", 300)
    return Machine(installation)


def test_a_training_its_evaluation_and_a_sweep_read_a_bucket(
    installation: Installation, machine: Machine, bucket: S3Server
) -> None:
    training = {"project_id": str(machine.project.id), "name": "By address", "config": CONFIG}

    async def scenario(owner: Owner) -> None:
        await owner.store_secrets()
        async with machine.worker(warm=True):
            trained = await owner.done("/jobs", training)
            evaluations = f"/jobs/{trained.id}/evaluations"
            own = await owner.done(evaluations, {})
            other = await owner.done(evaluations, {"data_path": "s3://bucket/held-out.txt"})
            sweep = await owner.done(
                "/jobs", {**training, "kind": "find_learning_rate", "finder": {"steps": 10}}
            )
            missing = await owner.ended(evaluations, {"data_path": "s3://bucket/nothing.txt"})
        assert sorted(machine.losses(trained.id)) == list(range(1, 7))
        # Where the data came from stays readable.
        assert trained.config["data"]["train_path"] == "s3://bucket/corpus/"
        measured = [(job.result or {})["perplexity"]["tuned"] for job in (own, other)]
        assert all(measured), (own.result, other.result)
        assert measured[0]["tokens"] != measured[1]["tokens"], "each has its own data"
        assert (sweep.result or {})["points"]
        assert missing.error_code == "data_not_found"
        assert "s3://bucket/nothing.txt" in (missing.error_message or "")

    with installation.serve() as server:
        asyncio.run(scenario(Owner(machine, server.signed_in(machine.user), bucket)))


@pytest.mark.skipif(why_no_sandbox() is not None, reason=f"no sandbox here: {why_no_sandbox()}")
def test_a_script_without_a_network_finds_the_data_of_its_addresses_beside_it(
    installation: Installation, machine: Machine, bucket: S3Server
) -> None:
    script = {
        "code": SCRIPT,
        "provider": "local",
        "datasets": ["s3://bucket/corpus/", "s3://bucket/held-out.txt"],
    }

    async def scenario(owner: Owner) -> None:
        async with machine.worker():
            await owner.store_secrets(AWS_SECRET_ACCESS_KEY="revoked")
            refused = await owner.ended("/ml-jobs", script)
            await owner.store_secrets()
            done = await owner.done("/ml-jobs", script)
            artifacts = await asyncio.to_thread(owner._browser.get, f"/api/jobs/{done.id}/artifacts")
        assert refused.error_code == "dataset_not_fetched"
        assert "AWS_SECRET_ACCESS_KEY" in (refused.error_message or ""), refused.error_message
        output = machine.output(done.id)
        assert f"data/corpus/words.txt {len(WORDS)}" in output
        assert "data/held-out.txt 2000" in output
        # What was brought is no result of the script, and nothing is kept twice.
        assert artifacts.json()["items"] == []
        assert not (machine.run_dir(done.id) / "inputs").exists()

    with installation.serve() as server:
        asyncio.run(scenario(Owner(machine, server.signed_in(machine.user), bucket)))
