"""A training's data and model travel with it, and their originals stay as they are."""

import json
from pathlib import Path
from uuid import uuid4

import pytest

from gpubloom.plan import TrainConfig, find_files
from gpubloom.server.secrets.tables import Secret
from gpubloom.server.security.secrets import Vault
from gpubloom.storage import StorageSettings, Store
from gpubloom.traincard.sync.accepted import TRAINING_PATHS, Entry, RefusedEntryError
from gpubloom.traincard.sync.apply import RunFolder
from gpubloom.worker.inputs import stage_inputs
from tests.tiny_models import make_tiny_model
from tests.traincard_mirror.conftest import KEY, SECRET, S3Server
from tests.worker.remote.renter import Renter

TEXT = "To be, or not to be, that is the question.\n" * 400


def _config(tmp_path: Path) -> dict[str, object]:
    texts = tmp_path / "texts"
    (texts / "old").mkdir(parents=True)
    for name in ("b.txt", "a.txt", "old/c.txt", "notes.md"):
        (texts / name).write_text(f"{name} {TEXT}")
    (tmp_path / "model").mkdir()
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / "model" / name).write_text("{}")
    return {
        "name": "x",
        "data": {
            "train_path": f"{texts}/**/*.txt",
            "eval_path": str(texts / "notes.md"),
            "tokenizer": {"kind": "file", "path": str(tmp_path / "model" / "tokenizer.json")},
        },
        "model": {"path": str(tmp_path / "model")},
    }


def test_paths_hold_wherever_the_run_directory_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, run_dir = _config(tmp_path), tmp_path / "run"
    taken = stage_inputs(run_dir, config)  # type: ignore[arg-type]
    assert taken["data"]["train_path"] == "inputs/train"
    assert taken["data"]["eval_path"] == "inputs/eval/notes.md"
    assert taken["data"]["tokenizer"]["path"] == "inputs/model/tokenizer.json"
    assert taken["model"]["path"] == "inputs/model"
    before = [file.read_text() for file in find_files(str(config["data"]["train_path"]))]  # type: ignore[index]
    assert stage_inputs(run_dir, config) == taken, "a second attempt finds everything in place"  # type: ignore[arg-type]
    moved = run_dir.rename(tmp_path / "elsewhere")
    monkeypatch.chdir(moved)
    assert [file.read_text() for file in find_files("inputs/train")] == before


def test_nothing_that_comes_back_is_written_to_the_originals(tmp_path: Path) -> None:
    config, run_dir = _config(tmp_path), tmp_path / "run"
    stage_inputs(run_dir, config)  # type: ignore[arg-type]
    for entry in (
        {"kind": "grow", "path": "inputs/train/a.txt", "offset": 0, "size": 7},
        {"kind": "whole", "path": "inputs/train/a.txt", "size": 7},
        {"kind": "rename", "path": "logs/output.log", "to": "inputs/train/a.txt"},
        {"kind": "remove", "path": "inputs"},
    ):
        with pytest.raises(RefusedEntryError, match=r"not allowed to write|cannot be renamed"):
            RunFolder(run_dir, TRAINING_PATHS).apply(Entry.parse(entry), b"changed")
    assert (tmp_path / "texts" / "a.txt").read_text() == f"a.txt {TEXT}"


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.xdist_group("s3")
def test_a_training_of_our_own_engine_takes_its_data_and_our_package_along(
    renter: Renter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("obstore")
    # Imports take their time on a busy machine.
    monkeypatch.setattr("tests.worker.machine.TIMEOUT_SECONDS", 250)
    text = tmp_path / "words.txt"
    text.write_text(TEXT)
    config = TrainConfig.model_validate(
        {
            "name": "tiny",
            "device": "cpu",
            "max_steps": 12,
            "batch_size": 2,
            "model": {"layers": 1, "heads": 2, "hidden_size": 16, "context_length": 32},
            "data": {"train_path": str(text)},
            "checkpoint": {"every_steps": 4},
        }
    )
    job_id = renter.rent()
    run_dir = renter.run_dir(job_id)
    for name in ("toy.json",):
        (run_dir / name).unlink()
    renter.installation.change(renter.job(job_id), config=config.model_dump(mode="json"))
    job = renter.run_until(job_id, "completed", "failed")
    assert job.status == "completed", f"{job.error_message}\n{renter.output(job_id)}"
    assert sorted(renter.losses(job_id)) == list(range(1, 13))
    assert (run_dir / "model" / "config.json").is_file()
    [rented] = renter.service.rented.values()
    there = renter.service.run_dir(rented)
    assert (there / "inputs/train/words.txt").read_text() == TEXT
    assert (there.parent / "site/gpubloom/engine/trainer.py").is_file()
    assert "torch" in " ".join(rented.launch.packages)
    assert not any("gpubloom" in package for package in rented.launch.packages)


@pytest.mark.long
@pytest.mark.xdist_group("s3")
def test_the_data_of_a_script_by_address_arrives_with_its_files(renter: Renter, bucket: S3Server) -> None:
    pytest.importorskip("obstore")
    # Through the server: it may not look at its folder again for what it has listed for an earlier test.
    corpus = Store(StorageSettings("bucket", KEY, SECRET, bucket.address, prefix="corpus"))
    corpus.put("words.txt", TEXT.encode())
    vault = Vault.of(renter.settings.home)
    for name, value in bucket.credentials.items():
        sealed = vault.seal(value, f"secret:{renter.user.id}::{name}")
        renter.installation.add(Secret(id=uuid4(), user_id=renter.user.id, name=name, sealed=sealed))
    code = "print('read', len(open('data/corpus/words.txt').read()))\n"
    job_id = renter.rent_script({"train.py": code}, datasets=["s3://bucket/corpus/"])
    renter.installation.change(renter.job(job_id), secrets=sorted(bucket.credentials))
    job = renter.run_until(job_id, "completed", "failed")
    assert job.status == "completed", f"{job.error_message}\n{renter.output(job_id)}"
    assert f"read {len(TEXT)}" in renter.output(job_id)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.xdist_group("s3")
def test_all_datasets_of_a_mix_travel_with_a_fine_tuning(
    renter: Renter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("obstore")
    monkeypatch.setattr("tests.worker.machine.TIMEOUT_SECONDS", 250)
    # Uploaded datasets have folders of their own, and may have equal names there.
    files = [tmp_path / folder / "rows.jsonl" for folder in ("first", "second", "third")]
    for number, file in enumerate(files, 1):
        file.parent.mkdir()
        rows = [{"prompt": f"{file.parent.name} {row}?", "completion": "Yes."} for row in range(number)]
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    train, *mixed = files
    model = make_tiny_model(tmp_path / "model")
    config = TrainConfig.model_validate(
        {
            "name": "mixed",
            "device": "cpu",
            "epochs": 1,
            "batch_size": 1,
            "model": {"path": str(model), "context_length": 64},
            "data": {
                "kind": "examples",
                "train_path": str(train),
                "mix": [{"path": str(file), "weight": 2} for file in mixed],
                "tokenizer": {"kind": "file", "path": str(model / "tokenizer.json")},
                "eval_fraction": 0,
                "packing": False,
            },
        }
    )
    job_id = renter.rent()
    (renter.run_dir(job_id) / "toy.json").unlink()
    renter.installation.change(renter.job(job_id), config=config.model_dump(mode="json"))
    job = renter.run_until(job_id, "completed", "failed")
    assert job.status == "completed", f"{job.error_message}\n{renter.output(job_id)}"
    [rented] = renter.service.rented.values()
    there = renter.service.run_dir(rented)
    for name, file in zip(("train", "mix-1", "mix-2"), files, strict=True):
        assert (there / "inputs" / name / "rows.jsonl").read_bytes() == file.read_bytes()
    # One row of the first file, and twice the two and three of the others.
    assert sorted(renter.losses(job_id)) == list(range(1, 1 + 1 + 2 * (2 + 3)))
