"""This server as the store of rented jobs: what a signed address may do, and what nobody may."""

import time
from collections.abc import Iterator
from urllib.parse import parse_qs, urlencode, urlsplit
from uuid import UUID, uuid4

import pytest

from gpubloom.server.accounts.tables import User
from gpubloom.server.jobs.tables import TrainingJob
from gpubloom.server.projects.tables import Project
from gpubloom.server.rentals import run_files
from gpubloom.server.settings import Settings
from gpubloom.server.storage.run_stores import server_store, why_no_server_store
from gpubloom.storage import ServerStore, StorageError
from gpubloom.storage.layout import JobLayout
from gpubloom.storage.server_store import ServerStore as Signing
from gpubloom.traincard.sync.accepted import Limits
from tests.server.installation import Browser, Installation, Server

PUBLIC = "https://bloom.example.org"


@pytest.fixture
def serving(installation: Installation) -> Iterator[Server]:
    with installation.serve(public_url=PUBLIC) as server:
        yield server


@pytest.fixture
def store(serving: Server) -> ServerStore:
    return server_store(serving.settings)


def _job(installation: Installation, owner: User, **changes: object) -> TrainingJob:
    project = installation.add(
        Project(id=uuid4(), user_id=owner.id, name="p", model_architecture="custom", model_size=1)
    )
    fields = {"target": "toy", "status": "running", "attempt": 1, "config": {}, "name": "j", **changes}
    return installation.add(TrainingJob(id=uuid4(), project_id=project.id, user_id=owner.id, **fields))


def _slot(job: TrainingJob | UUID, number: int = 1, attempt: int = 1) -> str:
    return JobLayout(str(job if isinstance(job, UUID) else job.id), attempt).slot(number)


def _address(store: ServerStore, method: str, name: str, life: float = 600.0) -> str:
    [address] = store.addresses(method, [name], life)  # type: ignore[arg-type]
    assert address.startswith(f"{PUBLIC}/api/run-files/jobs/")
    return address


def _changed(address: str, **query: str) -> str:
    parts = urlsplit(address)
    kept = {name: values[0] for name, values in parse_qs(parts.query).items()}
    return parts._replace(query=urlencode({**kept, **query})).geturl()


def _code(answer: object) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]  # type: ignore[attr-defined]


def test_a_machine_uploads_and_downloads_with_addresses_alone(
    serving: Server, store: ServerStore, installation: Installation
) -> None:
    job = _job(installation, installation.add_user("Ada"))
    stranger = serving.browser()
    content = bytes(range(256)) * 20_000
    assert stranger.put(_address(store, "PUT", _slot(job)), content=content).status_code == 204
    assert store.get(_slot(job)) == content
    assert store.sizes(JobLayout(str(job.id), 1).batches) == {_slot(job): len(content)}
    # A second time with the same bytes, as after a lost answer.
    assert stranger.put(_address(store, "PUT", _slot(job)), content=content).status_code == 204
    control = JobLayout(str(job.id), 1).control
    store.put(control, b'{"want": "pause"}')
    answer = stranger.get(_address(store, "GET", control))
    assert (answer.status_code, answer.content) == (200, b'{"want": "pause"}')
    assert answer.headers["Cache-Control"] == "no-store"


def test_an_address_is_good_for_what_was_signed_and_nothing_else(
    serving: Server, store: ServerStore, installation: Installation
) -> None:
    ada, eve = installation.add_user("Ada"), installation.add_user("Eve")
    hers, other = _job(installation, ada), _job(installation, eve)
    stranger = serving.browser()
    store.put(JobLayout(str(hers.id), 1).control, b"ada's")
    mine = _address(store, "PUT", _slot(other))
    forged = {
        "another job": mine.replace(str(other.id), str(hers.id)),
        "another slot": mine.replace("/in/00000001", "/in/00000002"),
        "another attempt": mine.replace("/a0001/", "/a0002/"),
        "a longer life": _changed(mine, expires=str(int(time.time()) + 10**6)),
        "a larger file": _changed(mine, size=str(10**12)),
        "no signature": _changed(mine, signature=""),
        "another signature": _changed(mine, signature="0" * 64),
        "numbers that are none": _changed(mine, expires="never"),
    }
    for what, address in forged.items():
        assert _code(stranger.put(address, content=b"x")) == (403, "address_invalid"), what
    # Neither the method nor the reader can be chosen anew; being signed in changes nothing.
    assert _code(stranger.get(mine)) == (403, "address_invalid")
    read = _address(store, "GET", JobLayout(str(other.id), 1).control)
    signed_in = serving.signed_in(eve)
    for browser in (stranger, signed_in):
        assert _code(browser.get(read.replace(str(other.id), str(hers.id)))) == (403, "address_invalid")
        assert _code(browser.put(read, content=b"x")) == (403, "address_invalid")
    assert store.sizes("jobs") == {JobLayout(str(hers.id), 1).control: 5}


@pytest.mark.parametrize(
    "name",
    ["jobs/J/a0001/control.json", "jobs/J/a0001/mailbox.json", "jobs/J/bundle/" + "0" * 64, "jobs/J/x", "x"],
)
def test_only_upload_batches_can_be_written_whatever_was_signed(
    serving: Server, installation: Installation, name: str
) -> None:
    job = _job(installation, installation.add_user("Ada"))
    [address] = server_store(serving.settings).addresses("PUT", [name.replace("J", str(job.id))], 60)
    assert _code(serving.browser().put(address, content=b"x")) == (403, "address_invalid")


def test_no_name_leaves_the_folder_of_the_store(serving: Server, store: ServerStore) -> None:
    for name in (
        "jobs/../secret.key",
        "../secret.key",
        "jobs/a/../../x",
        "/etc/passwd",
        "jobs//x",
        "jobs/.x",
    ):
        with pytest.raises(StorageError):
            store.get(name)
        [address] = store.addresses("GET", [name], 60)
        assert serving.browser().get(address).status_code in {403, 404}, name


def test_an_address_expires(serving: Server, store: ServerStore, installation: Installation) -> None:
    job = _job(installation, installation.add_user("Ada"))
    vault = store._sign, store._has_signed
    past = Signing(store._folder, PUBLIC, *vault, clock=lambda: time.time() - 700)
    assert _code(serving.browser().put(_address(past, "PUT", _slot(job)), content=b"x")) == (
        403,
        "address_expired",
    )
    assert store.sizes("jobs") == {}
    with pytest.raises(ValueError, match="one week"):
        store.addresses("PUT", [_slot(job)], 8 * 24 * 3600.0)


def test_a_machine_reports_its_start_in_little_space(
    serving: Server, store: ServerStore, installation: Installation
) -> None:
    job = _job(installation, installation.add_user("Ada"))
    name = JobLayout(str(job.id), 1).start_report
    address, browser = _address(store, "PUT", name), serving.browser()
    assert browser.put(address, content=b"machine up\n").status_code == 204
    assert store.get(name) == b"machine up\n"
    assert _code(browser.put(address, content=b"x" * (2 << 20))) == (413, "too_large")


def test_what_is_too_large_is_refused_before_a_byte_is_stored(
    serving: Server, store: ServerStore, installation: Installation
) -> None:
    job = _job(installation, installation.add_user("Ada"))
    address = _address(store, "PUT", _slot(job))
    browser = serving.browser()
    headers = {"Content-Length": str(Limits().batch_bytes + 1)}
    assert _code(browser.put(address, content=b"x", headers=headers)) == (413, "too_large")
    # Without a length nothing could be checked beforehand.
    assert _code(browser.put(address, content=iter([b"x"]))) == (400, "length_required")
    assert not (serving.settings.home / "run-store").exists()


def test_a_body_that_breaks_off_leaves_nothing(
    serving: Server, store: ServerStore, installation: Installation
) -> None:
    job = _job(installation, installation.add_user("Ada"))
    answer = serving.browser().put(
        _address(store, "PUT", _slot(job)), content=b"short", headers={"Content-Length": "10"}
    )
    assert _code(answer) == (400, "cut_off")
    assert [path for path in (serving.settings.home / "run-store").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    "change",
    [
        {"status": "completed"},
        {"status": "paused"},
        {"status": "queued"},
        {"attempt": 2},
        {"target": "local"},
    ],
)
def test_an_address_ends_with_its_attempt(
    serving: Server, store: ServerStore, installation: Installation, change: dict[str, object]
) -> None:
    job = _job(installation, installation.add_user("Ada"))
    layout = JobLayout(str(job.id), 1)
    store.put(layout.control, b"{}")
    addresses = _address(store, "PUT", _slot(job)), _address(store, "GET", layout.control)
    installation.change(job, **change)
    browser = serving.browser()
    assert _code(browser.put(addresses[0], content=b"x")) == (403, "attempt_over")
    assert _code(browser.get(addresses[1])) == (403, "attempt_over")
    assert store.sizes(layout.batches) == {}


def test_what_waits_for_the_worker_counts_against_the_quota(
    installation: Installation,
) -> None:
    with installation.serve(public_url=PUBLIC, user_quota_gb=1e-6) as server:
        store, owner = server_store(server.settings), installation.add_user("Ada")
        first, second = _job(installation, owner), _job(installation, owner)
        other = _job(installation, installation.add_user("Eve"))
        browser: Browser = server.browser()
        assert browser.put(_address(store, "PUT", _slot(first)), content=b"x" * 600).status_code == 204
        # Of all jobs of one person together; another person has their own quota.
        refused = browser.put(_address(store, "PUT", _slot(second)), content=b"x" * 600)
        assert _code(refused) == (507, "no_room")
        assert browser.put(_address(store, "PUT", _slot(other)), content=b"x" * 600).status_code == 204
        # Once the worker has taken it, there is room again.
        store.delete([_slot(first)])
        assert browser.put(_address(store, "PUT", _slot(second)), content=b"x" * 600).status_code == 204


def test_a_full_disk_is_told_so_that_the_machine_tries_again(
    serving: Server, store: ServerStore, installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = _job(installation, installation.add_user("Ada"))
    monkeypatch.setattr(run_files, "free_bytes", lambda folder: run_files.SPARE_BYTES)
    answer = serving.browser().put(_address(store, "PUT", _slot(job)), content=b"x")
    assert _code(answer) == (507, "disk_full")


def test_files_of_a_deleted_job_are_gone(
    serving: Server, store: ServerStore, installation: Installation
) -> None:
    owner = installation.add_user("Ada")
    job = _job(installation, owner, status="failed", summary={"cost": {"so_far": 1.0}})
    store.put(_slot(job), b"x")
    assert serving.signed_in(owner).delete(f"/api/jobs/{job.id}").status_code == 204
    assert store.sizes("jobs") == {}


@pytest.mark.parametrize(
    ("public_url", "server_store", "can"),
    [
        ("https://bloom.example.org", "auto", True),
        ("https://8.8.8.8", "auto", True),
        ("http://bloom.example.org", "auto", False),
        ("https://localhost", "auto", False),
        ("https://127.0.0.1", "auto", False),
        ("https://192.168.1.4", "auto", False),
        ("https://[fd00::1]", "auto", False),
        ("https://bloom", "auto", False),
        ("https://bloom.internal", "auto", False),
        (None, "auto", False),
        (None, "on", False),
        ("http://10.0.0.7:8000", "on", True),
        ("https://bloom.example.org", "off", False),
    ],
)
def test_the_server_is_a_store_only_where_machines_can_reach_it(
    public_url: str | None, server_store: str, can: bool
) -> None:
    settings = Settings(_env_file=None, public_url=public_url, server_store=server_store)
    assert (why_no_server_store(settings) is None) is can
