"""Ray Jobs as a provider: once per key, without a secret in sight, with faults in words."""

import asyncio
import os
import socket
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gpubloom.offers import Constraints, Need, Span, load_prices, offers
from gpubloom.providers.cloud import Fault
from gpubloom.providers.ray.provider import RayProvider
from gpubloom.providers.registry import provider_spec
from gpubloom.storage import StorageSettings, Store
from tests.engine.parallel.ray_cluster import RayCluster
from tests.providers.launches import ADDRESS, launch
from tests.providers.services.ray_service import RayService
from tests.providers.test_jobs_on_machines import TRAIN
from tests.storage.instances import Instance as Received
from tests.traincard_mirror.conftest import KEY, SECRET, S3Server

pytest.importorskip("ray", reason="ray is not installed: pip install 'gpubloom[ray]'")


@pytest.fixture
def service() -> Iterator[RayService]:
    with RayService() as service:
        yield service


@asynccontextmanager
async def opened(service: RayService, token: str = "", seconds: float = 20.0) -> AsyncIterator[RayProvider]:
    rented = RayProvider(service.url, token, seconds)
    yield rented
    await rented.close()


def test_a_job_is_started_once_followed_and_ended(service: RayService) -> None:
    async def story() -> None:
        async with opened(service, token="Hidden-Token") as rented:
            assert (await rented.check()).startswith("Ray ")
            first = await rented.submit(launch())
            again = await rented.submit(launch())
            assert first == again
            assert first.state == "running"
            assert first.hourly == 0
            assert first.billed_from is not None
            assert len(service.posted) == 1
            service.start({"submission_id": "raysubmit_other", "entrypoint": "", "runtime_env": {}})
            assert [instance.key for instance in await rented.list()] == [launch().key]
            await rented.cancel(first.id)
            ended = await rented.status(first.id)
            assert ended.state == "ended"
            assert ended.billed_to is not None
            assert await rented.list() == []
            assert (await rented.status("bloom-never-a1")).state == "ended"
            await rented.cancel("bloom-never-a1")

    asyncio.run(story())
    assert any(headers.get("Authorization") == "Bearer Hidden-Token" for headers in service.headers)
    assert "Hidden-Signature" not in "".join(service.posted)
    assert len(service.packages) == 1
    [wanted] = service.posted
    assert '"accelerator_type:A10G":0.001' in wanted.replace(" ", "")


def test_a_node_that_is_lost_is_told_from_a_command_that_fails(service: RayService) -> None:
    async def story() -> None:
        async with opened(service) as rented:
            await rented.submit(launch())
            service.end(launch().key, "FAILED", "Job entrypoint command failed with exit code 1")
            assert (await rented.status(launch().key)).state == "ended"
            service.end(launch().key, "FAILED", "The actor died because its node has died.")
            assert (await rented.status(launch().key)).state == "lost"

    asyncio.run(story())


@pytest.mark.long
@pytest.mark.parametrize(
    ("trouble", "kind"),
    [
        (401, "bad_credentials"),
        (429, "rate_limited"),
        (503, "unavailable"),
        (400, "refused"),
        ("hang", "timed_out"),
    ],
)
def test_faults_have_their_names_and_hold_no_secret(
    service: RayService, trouble: int | str, kind: str
) -> None:
    service.troubles.append(trouble)

    async def story() -> None:
        async with opened(service, seconds=4.0 if trouble == "hang" else 60.0) as rented:
            with pytest.raises(Fault) as fault:
                await rented.submit(launch())
            assert fault.value.kind == kind
            assert ADDRESS not in str(fault.value)
            assert fault.value.__context__ is None
            service.over.set()

    asyncio.run(story())
    assert service.jobs == {}


def test_a_cluster_of_another_version_leaves_no_connection_behind(
    service: RayService, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpubloom.providers.ray.client import EgressJobClient

    closed: list[Any] = []
    close = httpx2.Client.close

    def refuse(self: Any, **_: object) -> None:
        assert self._do_request("GET", "/api/version").status_code == 200
        raise RuntimeError("another version")

    # Asked while the client is made.
    monkeypatch.setattr(EgressJobClient, "_check_connection_and_version", refuse)
    monkeypatch.setattr(httpx2.Client, "close", lambda self: closed.append(self) or close(self))

    async def story() -> None:
        async with opened(service) as rented:
            with pytest.raises(Fault):
                await rented.check()
            assert len(closed) == 1

    asyncio.run(story())


def test_clusters_that_never_answer_leave_the_threads_of_other_jobs_alone() -> None:
    async def story() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        for _ in range(3):
            rented = RayProvider(f"http://127.0.0.1:{silent.getsockname()[1]}", seconds=0.3)
            with pytest.raises(Fault) as fault:
                await rented.check()
            assert fault.value.kind == "timed_out"
            await rented.close()
        assert await asyncio.to_thread(lambda: "others") == "others"

    # It takes connections, and nothing more.
    with socket.create_server(("127.0.0.1", 0), backlog=20) as silent:
        asyncio.run(story())
        # Also the threads of the clusters end: they would keep a worker from stopping.
        for thread in threading.enumerate():
            if thread.name.startswith("ray"):
                thread.join()


def test_nonsense_of_a_cluster_is_a_fault(service: RayService) -> None:
    async def story() -> None:
        async with opened(service) as rented:
            await rented.submit(launch())
            service.jobs[launch().key]["start_time"] = 10**18
            for asking in (rented.list(), rented.status(launch().key)):
                with pytest.raises(Fault):
                    await asking
            service.jobs[launch().key]["message"] = "x" * (17 << 20)
            with pytest.raises(Fault, match="more than 16,777,216 bytes"):
                await rented.list()

    asyncio.run(story())


def test_an_answer_that_is_lost_on_the_way_starts_no_second_job(service: RayService) -> None:
    service.troubles.append("cut")

    async def story() -> None:
        async with opened(service) as rented:
            assert (await rented.submit(launch())).state == "running"

    asyncio.run(story())
    assert len(service.jobs) == 1


def test_a_cluster_that_does_not_answer_and_one_that_nobody_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(address: str) -> Fault:
        with pytest.raises(Fault) as fault:
            await RayProvider(address, seconds=10.0).check()
        return fault.value

    assert asyncio.run(check("http://127.0.0.1:9")).kind == "unavailable"
    assert "set RAY_ADDRESS" in str(asyncio.run(check("")))
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:9")
    opened = provider_spec("ray").open({})
    with pytest.raises(Fault):
        asyncio.run(opened.check())


def test_gpus_of_the_cluster_are_offered_for_nothing(service: RayService) -> None:
    service.nodes = [
        {"state": "ALIVE", "resources_total": {"CPU": 8, "GPU": 2, "accelerator_type:A100-80G": 1}},
        {"state": "ALIVE", "resources_total": {"CPU": 8}},
        {"state": "DEAD", "resources_total": {"GPU": 8, "accelerator_type:H100": 1}},
    ]

    async def prices() -> list[Any]:
        async with opened(service) as rented:
            return await rented.prices()

    [row] = asyncio.run(prices())
    assert (row.gpu, row.gpus, row.hourly, row.kind) == ("A100 80GB", 2, 0, "free")


def test_the_price_file_of_the_docs_offers_the_cluster_for_nothing(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "providers.md"
    [text] = [part for part in page.read_text(encoding="utf-8").split("```json\n") if '"ray": {' in part]
    file = tmp_path / "prices.json"
    file.write_text(text.partition("```")[0], encoding="utf-8")
    need = Need(Span.of(40.0), Span.of(2.0), "A100 80GB")
    asked = Constraints(providers=frozenset({"ray"}))
    [offer] = offers(need, prices=load_prices(file), now=datetime.now(UTC), constraints=asked).offers
    assert (offer.provider, offer.gpu, offer.cost.total.high) == ("ray", "A100 80GB", 0)


# A real cluster, with its dashboard: that is what answers for Ray Jobs.


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with RayCluster(dashboard=True) as cluster:
        cluster.start_head(cpus=1)
        yield cluster


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with S3Server(tmp_path / "s3") as server:
        yield Store(StorageSettings("bucket", KEY, SECRET, server.address, prefix="bloom"))


async def until(asked: Callable[[], Any], seconds: float = 180.0) -> None:
    deadline = time.monotonic() + seconds
    while not await asked():
        assert time.monotonic() < deadline, "it never came true"
        await asyncio.sleep(0.3)


@pytest.mark.long
@pytest.mark.xdist_group("ray")
def test_on_a_real_cluster_a_script_runs_by_the_agent_and_all_it_made_arrives(
    cluster: RayCluster, store: Store, tmp_path: Path
) -> None:
    job = Received(store, tmp_path, {"train.py": TRAIN})
    sent = job.send()

    async def story() -> None:
        rented = provider_spec("ray").open({"address": f"http://127.0.0.1:{cluster.dashboard_port}"})
        try:
            await runs_a_script(rented)
        finally:
            await rented.close()

    async def runs_a_script(rented: Any) -> None:
        # The dashboard is there a moment after the node.
        await until(lambda: answers(rented))
        machine = await rented.submit(on_any_node("bloom-ray-a1", sent.command, sent.address))
        job.output.touch()
        # A cold cluster takes its time to set up the first job's surroundings.
        await until(lambda: has_begun(rented, machine.id))
        arrival = await asyncio.to_thread(job.until, "ended")
        assert arrival.exit is not None
        assert arrival.exit.code == 0
        await until(lambda: has_state(rented, machine.id, "ended"))
        await shows_no_secret(sent.address)
        assert [*(cluster.home / "bloom-jobs").iterdir()] == [], "a node keeps nothing that has arrived"
        # One that stays is found, and ended with all that it started.
        staying = await rented.submit(on_any_node("bloom-ray-a2", "sleep 600", sent.address))
        assert [found.key for found in await rented.list()] == [staying.key]
        await until(lambda: has_begun(rented, staying.id))
        await rented.cancel(staying.id)
        await until(lambda: has_state(rented, staying.id, "ended"))
        assert await rented.list() == []

    async def shows_no_secret(address: str) -> None:
        listed = await asyncio.to_thread(
            subprocess.run,
            ["ps", "axww", "-o", "args"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert address not in listed.stdout
        logs = [file for file in cluster.folder.rglob("*") if file.is_file() and os.access(file, os.R_OK)]
        assert logs
        for file in logs:
            if file.suffix in {".log", ".out", ".err"}:
                assert address not in file.read_text(errors="replace"), file

    asyncio.run(story())
    assert (job.run_dir / "model/weights.bin").read_bytes() == bytes(range(256)) * 64


def on_any_node(key: str, command: str, address: str) -> Any:
    return launch(key, gpu="", gpus=0, command=command, start_address=address)


async def answers(rented: Any) -> bool:
    try:
        await rented.list()
    except Fault:
        return False
    return True


async def has_state(rented: Any, key: str, state: str) -> bool:
    return bool((await rented.status(key)).state == state)


async def has_begun(rented: Any, key: str) -> bool:
    return bool((await rented.status(key)).state != "starting")
