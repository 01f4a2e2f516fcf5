"""What a job on a rented machine made stays in the bucket: addresses that expire, retention, tenants."""

import asyncio
import hashlib
from datetime import timedelta
from typing import Any
from uuid import UUID

import httpx2
import pytest

from gpubloom.server.accounts.hub_tokens import HubToken, _context
from gpubloom.server.clock import now
from gpubloom.server.db.database import Database
from gpubloom.server.rentals.stored_artifacts import remove_expired
from gpubloom.server.rentals.tables import StoredArtifact
from gpubloom.server.security.secrets import Vault
from gpubloom.storage import Store
from gpubloom.storage.layout import JobLayout
from tests.server.installation import Browser, Server
from tests.worker.remote.renter import Renter

pytest.importorskip("obstore")
pytestmark = pytest.mark.xdist_group("s3")

WEIGHTS = "weights " * 1000
SCRIPT = (
    "import os\nos.makedirs('out', exist_ok=True)\n"
    "open('out/weights of ü.bin', 'w').write('weights ' * 1000)\n"
    "open('out/same.bin', 'w').write('weights ' * 1000)\n"
)


def _ended(renter: Renter, job_id: UUID) -> None:
    async def scenario() -> str:
        async with renter.worker() as loop:
            job = await renter.until(job_id, "completed", "failed")
            # A job has ended a moment before its files are in order.
            while loop._followed:
                await asyncio.sleep(0.02)
            return job.status

    assert asyncio.run(scenario()) == "completed"


def _objects(renter: Renter, job_id: UUID) -> set[str]:
    assert renter.settings.storage is not None
    return set(Store(renter.settings.storage).sizes(JobLayout(str(job_id), 1).folder))


def _serve(renter: Renter) -> Any:
    bucket = {name: getattr(renter.settings, name) for name in _BUCKET}
    return renter.installation.serve(**bucket)


_BUCKET = ("storage_bucket", "storage_key", "storage_secret", "storage_endpoint", "storage_prefix")


def _listed(browser: Browser, job_id: UUID) -> list[dict[str, Any]]:
    answer = browser.get(f"/api/jobs/{job_id}/stored-artifacts")
    assert answer.status_code == 200, answer.text
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


def _expire(renter: Renter) -> int:
    async def scenario() -> int:
        database = Database(renter.settings.database)
        try:
            return await remove_expired(database, renter.settings)
        finally:
            await database.close()

    return asyncio.run(scenario())


@pytest.mark.long
def test_files_stay_in_the_bucket_with_addresses_that_expire_until_retention_removes_them(
    renter: Renter,
) -> None:
    job_id = renter.rent_script({"train.py": SCRIPT}, sandboxed=False)
    _ended(renter, job_id)
    digest = hashlib.sha256(WEIGHTS.encode()).hexdigest()
    layout = JobLayout(str(job_id), 1)
    # Nothing of the transport is left.
    assert _objects(renter, job_id) == {
        f"{layout.artifacts}/{digest}/weights_of__.bin",
        f"{layout.artifacts}/{digest}/same.bin",
    }
    with _serve(renter) as server:
        server_tests(server, renter, job_id, digest)
    assert _expire(renter) == 0
    rows = renter.installation.all(StoredArtifact)
    renter.installation.change(rows[0], stored_at=now() - timedelta(days=31))
    assert _expire(renter) == 1
    assert len(_objects(renter, job_id)) == 1
    renter.installation.change(rows[1], stored_at=now() - timedelta(days=31))
    assert _expire(renter) == 1
    assert _objects(renter, job_id) == set()
    assert renter.installation.all(StoredArtifact) == []
    assert renter.installation.actions().count("artifacts.expired") == 2


def server_tests(server: Server, renter: Renter, job_id: UUID, digest: str) -> None:
    ada, eve = server.signed_in(renter.user), server.signed_in(renter.installation.add_user("Eve"))
    items = _listed(ada, job_id)
    assert [(item["path"], item["size"], item["sha256"]) for item in items] == [
        ("out/same.bin", len(WEIGHTS), digest),
        ("out/weights of ü.bin", len(WEIGHTS), digest),
    ]
    address = f"/api/jobs/{job_id}/stored-artifacts/{items[0]['id']}/address"
    created = ada.post(address, json={"life_seconds": 60})
    assert created.status_code == 200, created.text
    fetched = httpx2.get(created.json()["address"])
    assert (fetched.status_code, fetched.text) == (200, WEIGHTS)
    assert "X-Amz-Expires=60" in created.json()["address"]
    # Changing the name or the life breaks the signature.
    forged = created.json()["address"].replace("X-Amz-Expires=60", "X-Amz-Expires=600")
    assert httpx2.get(forged).status_code == 403
    assert httpx2.put(created.json()["address"], content=b"x").status_code == 403
    assert "artifact.address_created" in renter.installation.actions()
    for life in (1, 8 * 86_400):
        assert ada.post(address, json={"life_seconds": life}).status_code == 422
    # Another person finds neither the job nor its files, also not below a job of their own.
    assert eve.get(f"/api/jobs/{job_id}/stored-artifacts").status_code == 404
    assert eve.post(address, json={}).status_code == 404
    other = f"/api/jobs/{job_id}/stored-artifacts/{job_id}/address"
    assert ada.post(other, json={}).json()["code"] == "file_not_found"


@pytest.mark.long
def test_a_second_attempt_replaces_what_the_first_one_made_and_deleting_the_job_removes_all(
    renter: Renter,
) -> None:
    job_id = renter.rent_script({"train.py": "open('a.txt', 'a').write('one')"}, sandboxed=False)
    _ended(renter, job_id)
    before = _objects(renter, job_id)
    job = renter.job(job_id)
    renter.installation.change(job, status="queued", want="run", attempt=job.attempt)
    _ended(renter, job_id)
    after = _objects(renter, job_id)
    assert len(before) == len(after) == 1
    assert before != after
    with _serve(renter) as server:
        ada = server.signed_in(renter.user)
        assert [item["path"] for item in _listed(ada, job_id)] == ["a.txt"]
        assert ada.delete(f"/api/jobs/{job_id}").status_code in {200, 202, 204}
    assert _objects(renter, job_id) == set()
    assert renter.installation.all(StoredArtifact) == []


def test_without_retention_nothing_stays_in_the_bucket(renter: Renter) -> None:
    renter.settings = renter.settings.model_copy(update={"artifact_retention_days": 0})
    job_id = renter.rent_script({"train.py": SCRIPT}, sandboxed=False)
    _ended(renter, job_id)
    assert _objects(renter, job_id) == set()
    assert (renter.run_dir(job_id) / "work/out/same.bin").read_text() == WEIGHTS


@pytest.mark.long
def test_a_script_that_loads_from_the_hub_takes_the_owners_token_along_as_a_secret(renter: Renter) -> None:
    token = "hf_Owners_Token"
    sealed = Vault.of(renter.settings.home).seal(token, _context(renter.user.id))
    renter.installation.add(HubToken(user_id=renter.user.id, sealed=sealed))
    plain = renter.rent_script({"train.py": "print(1)"}, sandboxed=False)
    loads = renter.rent_script({"train.py": "print(1)"}, sandboxed=False, hub_models=("gpt2",))
    _ended(renter, plain)
    _ended(renter, loads)
    launches = {each.launch.key.split("-")[-2]: each.launch for each in renter.service.rented.values()}
    secrets = [dict(launch.secrets) for launch in launches.values()]
    assert sorted(secrets, key=len) == [{}, {"HF_TOKEN": token}]
    assert token not in repr(list(renter.service.rented.values()))
