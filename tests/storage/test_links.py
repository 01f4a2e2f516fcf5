"""A script leaves links in its folder; what a rented machine sends afterwards goes through none of them."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from gpubloom.storage import DamagedBatchError, Receiver, Store
from gpubloom.storage.layout import JobLayout
from gpubloom.traincard.sync.accepted import SCRIPT_PATHS
from gpubloom.traincard.sync.upload_batch import UploadBatch

pytest.importorskip("obstore")
pytestmark = pytest.mark.xdist_group("s3")

EVIL = b"evil!"
DIGEST = hashlib.sha256(EVIL).hexdigest()

THROUGH_A_FOLDER: dict[str, list[dict[str, Any]]] = {
    "whole": [{"kind": "whole", "path": "work/link/kept", "size": len(EVIL)}],
    "new": [{"kind": "whole", "path": "work/link/new/file", "size": len(EVIL)}],
    "grow": [{"kind": "grow", "path": "work/link/kept", "offset": 0, "size": len(EVIL)}],
    "fresh": [{"kind": "grow", "path": "work/link/kept", "offset": 0, "size": len(EVIL), "fresh": True}],
    "part": [
        {"kind": "part", "path": "work/link/kept", "offset": 0, "size": len(EVIL)},
        {"kind": "done", "path": "work/link/kept", "total": len(EVIL), "sha256": DIGEST},
    ],
    "remove": [{"kind": "remove", "path": "work/link/kept"}],
    "remove folder": [{"kind": "remove", "path": "work/link/folder"}],
    "rename out": [{"kind": "rename", "path": "work/mine", "to": "work/link/kept"}],
    "rename in": [{"kind": "rename", "path": "work/link/kept", "to": "work/stolen"}],
    "grow link": [{"kind": "grow", "path": "work/file", "offset": 0, "size": len(EVIL)}],
    "folder": [{"kind": "folder", "path": "work/link/made"}],
}


def seen(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    (folder / "folder").mkdir(parents=True)
    (folder / "folder/inside").write_text("inside")
    (folder / "kept").write_text("original")
    return folder


@pytest.fixture
def run_dir(tmp_path: Path, outside: Path) -> Path:
    work = tmp_path / "run/work"
    work.mkdir(parents=True)
    (work / "link").symlink_to(outside)
    (work / "file").symlink_to(outside / "kept")
    (work / "mine").write_text("mine")
    return tmp_path / "run"


def send(store: Store, entries: list[dict[str, Any]]) -> None:
    body = b"".join(EVIL for entry in entries if "size" in entry)
    batch = UploadBatch("job-1", 1, number=1, next_in=10.0, entries=entries, body=body)
    store.put(JobLayout("job-1", 1).slot(1), batch.to_bytes())


@pytest.mark.parametrize("entries", THROUGH_A_FOLDER.values(), ids=THROUGH_A_FOLDER)
def test_an_entry_that_leads_through_a_link_is_refused_and_nothing_outside_changes(
    store: Store, run_dir: Path, outside: Path, entries: list[dict[str, Any]]
) -> None:
    before = seen(outside)
    receiver = Receiver(store, "job-1", 1, run_dir, accepted=SCRIPT_PATHS)
    send(store, entries)
    with pytest.raises(DamagedBatchError):
        receiver.once()
    assert seen(outside) == before
    assert not (run_dir / "work/stolen").exists()


def test_a_link_in_the_place_of_a_file_is_replaced_or_removed_itself(
    store: Store, run_dir: Path, outside: Path
) -> None:
    before = seen(outside)
    receiver = Receiver(store, "job-1", 1, run_dir, accepted=SCRIPT_PATHS)
    whole = {"kind": "whole", "path": "work/file", "size": len(EVIL)}
    send(store, [whole, {"kind": "remove", "path": "work/link"}])
    assert receiver.once().applied == 1
    assert seen(outside) == before
    assert (run_dir / "work/file").read_bytes() == EVIL
    assert not (run_dir / "work/file").is_symlink()
    assert not (run_dir / "work/link").is_symlink()


def test_a_checkpoint_folder_with_links_in_it_is_removed_without_what_they_lead_to(
    store: Store, run_dir: Path, outside: Path
) -> None:
    before = seen(outside)
    (run_dir / "checkpoints/step-1").mkdir(parents=True)
    (run_dir / "checkpoints/step-1/link").symlink_to(outside)
    receiver = Receiver(store, "job-1", 1, run_dir, accepted=SCRIPT_PATHS)
    send(store, [{"kind": "remove", "path": "checkpoints/step-1"}])
    assert receiver.once().applied == 1
    assert seen(outside) == before
    assert not (run_dir / "checkpoints/step-1").exists()


def test_the_comparison_at_the_end_reads_no_file_through_a_link(store: Store, run_dir: Path) -> None:
    known = hashlib.sha256(b"original").hexdigest()
    tree = {"work/link/kept": [8, known], "work/file": [8, known]}
    batch = UploadBatch("job-1", 1, number=1, next_in=10.0, ended=True, tree=tree)
    store.put(JobLayout("job-1", 1).slot(1), batch.to_bytes())
    receiver = Receiver(store, "job-1", 1, run_dir, accepted=SCRIPT_PATHS)
    assert receiver.once().differences == ("work/file", "work/link/kept")


@pytest.mark.parametrize("source", ["work/link", "work/mine"])
def test_nothing_is_renamed_into_another_folder_of_the_run(store: Store, run_dir: Path, source: str) -> None:
    receiver = Receiver(store, "job-1", 1, run_dir, accepted=SCRIPT_PATHS)
    send(store, [{"kind": "rename", "path": source, "to": "model/stolen"}])
    with pytest.raises(DamagedBatchError):
        receiver.once()
    assert not (run_dir / "model/stolen").exists()


def test_a_link_is_not_renamed_to_the_folder_of_the_model(store: Store, run_dir: Path) -> None:
    receiver = Receiver(store, "job-1", 1, run_dir, accepted=SCRIPT_PATHS)
    send(store, [{"kind": "rename", "path": "work/link", "to": "model"}])
    with pytest.raises(DamagedBatchError):
        receiver.once()
    assert not (run_dir / "model").exists()
    assert (run_dir / "work/link").is_symlink()
