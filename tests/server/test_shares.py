"""What one person may hold at once, over real sockets: event streams, downloads, readers of files."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import UUID, uuid4

import anyio
import httpx2
import pytest

from gpubloom.server.accounts.shares import (
    MOST_READERS,
    READERS_PER_PERSON,
    READS_PER_PERSON,
    RUN_REQUESTS_PER_PERSON,
    Readers,
)
from gpubloom.server.accounts.tables import User
from gpubloom.server.problems import TooManyRequests
from tests.live_server import LiveServer, live_server
from tests.server.installation import Installation, Server
from tests.server.jobs.recorded import add_dataset, add_job

WAIT_SECONDS = 60
STREAMS, DOWNLOADS = 2, 1


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    home = tmp_path_factory.mktemp("shares") / "home"
    limits = {
        "BLOOM_MAX_STREAMS_PER_USER": str(STREAMS),
        "BLOOM_MAX_DOWNLOADS_PER_USER": str(DOWNLOADS),
    }
    with live_server(home, **limits) as server:
        yield server


class Person:
    """Somebody with a token, a job whose model is too large for any buffer, and a dataset."""

    def __init__(self, live: LiveServer, name: str) -> None:
        installation = Installation(live.home, f"sqlite+aiosqlite:///{live.home / 'bloom.db'}")
        user = installation.add_user(f"{name}{uuid4().hex[:8]}")
        token, _ = installation.add_token(user, "read", "write")
        self.job = add_job(installation, user, status="completed").id
        self.dataset = add_dataset(installation, user).id
        model = live.home / "runs" / str(self.job) / "model"
        model.mkdir(parents=True)
        with (model / "model.safetensors").open("wb") as file:
            file.truncate(200 << 20)
        self.client = httpx2.Client(
            base_url=live.address, headers={"Authorization": f"Bearer {token}"}, timeout=WAIT_SECONDS
        )

    def opened(self, path: str, stack: ExitStack) -> httpx2.Response:
        """An answer whose end nobody reads."""
        return stack.enter_context(self.client.stream("GET", path))


@pytest.fixture
def ada(live: LiveServer) -> Iterator[Person]:
    person = Person(live, "ada")
    with person.client:
        yield person


@pytest.fixture
def grace(live: LiveServer) -> Iterator[Person]:
    person = Person(live, "grace")
    with person.client:
        yield person


def _assert_refused(answer: httpx2.Response) -> None:
    answer.read()
    assert answer.status_code == 429, answer.text
    assert answer.json()["code"] == "too_many_at_once"
    assert int(answer.headers["Retry-After"]) > 0


def _status_later(person: Person, path: str) -> int:
    """What the server answers once it has seen that earlier readers are gone."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        with person.client.stream("GET", path) as answer:
            if answer.status_code != 429 or time.monotonic() > deadline:
                return answer.status_code
        time.sleep(0.05)


@pytest.mark.long
@pytest.mark.parametrize("address", ["/api/jobs/{job}/stream", "/api/training-jobs/{job}/stream"])
def test_one_person_holds_so_many_event_streams_and_others_theirs(
    ada: Person, grace: Person, address: str
) -> None:
    own = address.format(job=ada.job)
    with ExitStack() as stack:
        assert [ada.opened(own, stack).status_code for _ in range(STREAMS)] == [200] * STREAMS
        _assert_refused(ada.opened(own, stack))
        assert grace.opened(address.format(job=grace.job), stack).status_code == 200
    assert _status_later(ada, own) == 200


@pytest.mark.long
@pytest.mark.parametrize(
    "address",
    [
        "/api/jobs/{job}/model/archive",
        "/api/jobs/{job}/model/files/model.safetensors",
        "/api/jobs/{job}/artifacts/archive",
        "/api/jobs/{job}/artifacts/files/out.bin",
        "/api/datasets/{dataset}/converted",
    ],
)
def test_one_person_holds_so_many_downloads_and_others_theirs(
    live: LiveServer, ada: Person, grace: Person, address: str
) -> None:
    for person in (ada, grace):
        work = live.home / "runs" / str(person.job) / "work"
        work.mkdir(exist_ok=True)
        with (work / "out.bin").open("wb") as file:
            file.truncate(200 << 20)
    with ExitStack() as stack:
        held = ada.opened(f"/api/jobs/{ada.job}/model/archive", stack)
        assert held.status_code == 200
        _assert_refused(ada.opened(address.format(job=ada.job, dataset=ada.dataset), stack))
        other = grace.opened(address.format(job=grace.job, dataset=grace.dataset), stack)
        assert other.status_code == 200
    assert _status_later(ada, address.format(job=ada.job, dataset=ada.dataset)) == 200


def test_a_download_that_was_read_to_its_end_is_no_longer_held(ada: Person) -> None:
    part = {"Range": "bytes=0-99"}
    for _ in range(DOWNLOADS + 3):
        answer = ada.client.get(f"/api/jobs/{ada.job}/model/archive", headers=part)
        assert answer.status_code == 206


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/jobs/{job}/samples"),
        ("GET", "/api/jobs/{job}/what-ran"),
        ("GET", "/api/jobs/{job}/logs/search?text=loss"),
        ("POST", "/api/sent-runs/batches"),
    ],
)
def test_requests_that_keep_a_thread_busy_are_counted_together(
    installation: Installation, server: Server, member: User, method: str, path: str
) -> None:
    address = path.format(job=add_job(installation, member, status="completed").id)
    browser, counted = server.signed_in(member), server.app.state.shares.runs._reads
    assert browser.request(method, address, content=b"").status_code != 429
    with ExitStack() as stack:
        for _ in range(RUN_REQUESTS_PER_PERSON):
            stack.enter_context(counted.hold(member.id))
        _assert_refused(browser.request(method, address, content=b""))
    assert browser.request(method, address, content=b"").status_code != 429


def test_readers_of_one_person_leave_some_for_others() -> None:
    crowd, other = uuid4(), uuid4()
    running: list[UUID] = []
    most_of_crowd = 0

    async def scenario() -> None:
        readers = Readers(
            "previews", most=MOST_READERS, per_person=READERS_PER_PERSON, waiting=READS_PER_PERSON
        )
        release = anyio.Event()
        nonlocal most_of_crowd

        async def read(user_id: UUID) -> None:
            async with readers.hold(user_id):
                running.append(user_id)
                await release.wait()

        async with anyio.create_task_group() as tasks:
            for _ in range(READS_PER_PERSON):
                tasks.start_soon(read, crowd)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(read, other)
            await anyio.wait_all_tasks_blocked()
            most_of_crowd = running.count(crowd)
            assert other in running
            with pytest.raises(TooManyRequests) as refused:
                async with readers.hold(crowd):
                    pass
            assert refused.value.code == "too_many_at_once"
            release.set()
        # Everybody who waited had their turn, and nothing is remembered of them.
        assert running.count(crowd) == READS_PER_PERSON
        assert not readers._own

    anyio.run(scenario)
    assert most_of_crowd == READERS_PER_PERSON < MOST_READERS


def test_the_settings_of_shares_must_be_positive(tmp_path: Path) -> None:
    from gpubloom.server.settings import SettingsError, load_settings

    with pytest.raises(SettingsError, match="BLOOM_MAX_STREAMS_PER_USER"):
        load_settings(home=tmp_path, max_streams_per_user=0)
