"""A Modal Volume as the store of a job, through Modal's own SDK: no bucket, no address of this server."""

import asyncio
import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpubloom.providers.cloud import Instance, Launch
from gpubloom.providers.modal.connection import TimeLimits
from gpubloom.providers.modal.provider import PROVIDER, ModalProvider
from gpubloom.providers.modal.volume_store import ModalVolumeStore
from gpubloom.storage import StorageError, StoreRefused
from gpubloom.traincard import ControlFile
from tests.providers.services.modal_service import TOKEN_ID, TOKEN_SECRET, ModalService
from tests.storage.instances import Instance as RentedRun

KEY = "bloom-0123abcd-00000000000000000000000000000001-a1"
VOLUME = KEY.removesuffix("-a1")
LIMITS = TimeLimits(answer=20, image=20, machine=20, clean_up=5, look_again=(0.0, 0.2))
FOLDER = "jobs/job-1"

pytestmark = pytest.mark.xdist_group("modal")


@pytest.fixture(scope="module")
def running_service() -> Iterator[ModalService]:
    with ModalService() as service, pytest.MonkeyPatch.context() as patch:
        patch.setenv(*next(iter(service.environment.items())))
        yield service


@pytest.fixture
def service(running_service: ModalService) -> Iterator[ModalService]:
    yield running_service
    running_service.recover()
    for volume_id in list(running_service.volumes.names.values()):
        running_service.volumes.delete(volume_id)
    running_service.sandboxes.clear()


@pytest.fixture
def store(service: ModalService) -> Iterator[ModalVolumeStore]:
    opened = PROVIDER.open_store(KEY, lambda: service.credentials)
    assert isinstance(opened, ModalVolumeStore)
    yield opened
    opened.close()


def run_on_modal(there: RentedRun, script_ends: str = "ended") -> Instance:
    """Start the job in a sandbox, receive until its end."""
    sent = there.send()

    async def calls() -> Instance:
        opened = ModalProvider(TOKEN_ID, TOKEN_SECRET, limits=LIMITS)
        request = Launch(
            key=KEY,
            gpu="A100 80GB",
            gpus=1,
            command=sent.command,
            start_address=sent.address_with({"A": "b"}),
        )
        try:
            started = await opened.submit(request)
            await asyncio.to_thread(there.until, script_ends)
            while (found := await opened.status(started.id)).state == "running":
                await asyncio.sleep(0.05)
            return found
        finally:
            await opened.close()

    return asyncio.run(calls())


def test_objects_are_stored_listed_read_and_deleted_with_the_volume(
    service: ModalService, store: ModalVolumeStore, tmp_path: Path
) -> None:
    large = bytes(range(256)) * (70 << 10)
    (tmp_path / "large").write_bytes(large)
    store.put(f"{FOLDER}/a0001/control.json", b"{}")
    store.put(f"{FOLDER}/a0001/control.json", b'{"version": 1}')
    store.put_files({f"{FOLDER}/bundle/large": tmp_path / "large"})
    store.put(f"{FOLDER}/bundle/stream", io.BytesIO(b"streamed"))
    assert store.get(f"{FOLDER}/a0001/control.json") == b'{"version": 1}'
    assert store.get(f"{FOLDER}/bundle/large") == large
    assert store.get(f"{FOLDER}/bundle/large", most=1000) is None
    assert store.get(f"{FOLDER}/bundle/none") is None
    assert store.sizes(FOLDER) == {
        f"{FOLDER}/a0001/control.json": 14,
        f"{FOLDER}/bundle/large": len(large),
        f"{FOLDER}/bundle/stream": 8,
    }
    assert (store.has(f"{FOLDER}/bundle/stream"), store.has(f"{FOLDER}/bundle/none")) == (True, False)
    assert store.sizes("jobs/job-2") == {}
    store.delete([f"{FOLDER}/bundle/stream", f"{FOLDER}/bundle/stream"])
    assert f"{FOLDER}/bundle/stream" not in store.sizes(FOLDER)
    assert list(service.volumes.names) == [VOLUME]
    store.delete_folder(FOLDER)
    store.delete_folder(FOLDER)
    assert service.volumes.names == {}


@pytest.mark.long
def test_a_job_runs_on_modal_and_comes_back_through_its_volume(
    service: ModalService, store: ModalVolumeStore, tmp_path: Path
) -> None:
    script = (
        "import os, time\nos.mkdir('model'); open('model/w', 'w').write('weights')\n"
        "for step in range(30):\n    print('step', step, flush=True); time.sleep(0.15)\n"
    )
    # Few slots: the mailbox is renewed while the job runs, and the sandbox must see the new one.
    there = RentedRun(store, tmp_path, {"train.py": script}, slots=6)
    service.volumes.refused_reloads = 2
    assert run_on_modal(there).detail == "The command ended with exit code 0."
    assert (there.run_dir / "model/w").read_text() == "weights"
    assert "step 29" in (there.run_dir / "logs" / "output.log").read_text()
    assert service.volumes.reloads > 0
    [sandbox] = service.sandboxes.values()
    assert [mount.mount_path for mount in sandbox.definition.volume_mounts] == ["/mnt/bloom"]


@pytest.mark.long
def test_a_command_reaches_the_job_in_its_sandbox(
    service: ModalService, store: ModalVolumeStore, tmp_path: Path
) -> None:
    there = RentedRun(
        store, tmp_path, {"train.py": "import time\nprint('on', flush=True); time.sleep(600)\n"}
    )
    once = there.receiver.once

    def once_and_stop() -> object:
        arrival = once()
        if arrival.applied and ControlFile(there.run_dir).read().want == "run":
            ControlFile(there.run_dir).want("cancel")
        return arrival

    there.receiver.once = once_and_stop  # type: ignore[method-assign, assignment]
    assert run_on_modal(there).state == "ended"
    record = there.receiver.once().exit
    assert record is not None
    assert record.reason != "finished"


def test_a_refused_token_is_named_and_a_new_one_is_used_at_once(service: ModalService) -> None:
    entered = {**service.credentials, "token_secret": "as-old"}
    store = ModalVolumeStore(KEY, lambda: entered, replace(LIMITS, answer=5))
    try:
        with pytest.raises(StoreRefused, match=r"modal\.com/settings/tokens") as refused:
            store.sizes(FOLDER)
        assert refused.value.code == "bad_credentials"
        entered["token_secret"] = TOKEN_SECRET
        assert store.sizes(FOLDER) == {}
        # What passes is no reason to give up.
        service.fail_next("unavailable", times=8, calls="VolumeListFiles2")
        with pytest.raises(StorageError) as away:
            store.sizes(FOLDER)
        assert not isinstance(away.value, StoreRefused)
        service.recover()
        assert store.sizes(FOLDER) == {}
    finally:
        store.close()


def test_stores_of_our_jobs_are_listed_and_removed_and_others_are_left_alone(
    service: ModalService, store: ModalVolumeStore
) -> None:
    store.put(f"{FOLDER}/a0001/control.json", b"{}")
    service.volumes.create("my-data", service.new_identifier("vo"))

    async def calls() -> list[str]:
        opened = ModalProvider(TOKEN_ID, TOKEN_SECRET, limits=LIMITS)
        try:
            found = list(await opened.stores())
            for name in found:
                await opened.remove_store(name)
                await opened.remove_store(name)
            return found
        finally:
            await opened.close()

    assert asyncio.run(calls()) == [VOLUME]
    assert list(service.volumes.names) == ["my-data"]
