"""TensorBoard's files, written for and read from the real TensorBoard."""

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpubloom.traincard import Reporter, load_curves, load_latest, read_all
from gpubloom.traincard.interop import export_tensorboard, import_tensorboard
from gpubloom.traincard.interop.event_files import Scalars, crc32c, read_scalars, write_scalars, write_version
from tests.errors import raises

pytest.importorskip("tensorboard")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


def record(run_dir: Path, steps: range, **options: Any) -> None:
    with Reporter(run_dir, telemetry_seconds=0, **options) as reporter:
        for step in steps:
            reporter.metrics({"loss": 1 / (step + 1), "eval/accuracy": step / 100}, step)
        reporter.system({"cpu/utilization": 41.0})


def seen_by_tensorboard(folder: Path) -> dict[str, list[tuple[int, float, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    found.Reload()
    return {
        tag: [(scalar.step, scalar.value, scalar.wall_time) for scalar in found.Scalars(tag)]
        for tag in found.Tags()["scalars"]
    }


def test_the_checksum_is_castagnolis() -> None:
    # RFC 3720, appendix B.4.
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(bytes(range(32))) == 0x46DD794E
    assert crc32c(b"\xff" * 32) == 0x62A8AB43


def test_tensorboard_sees_every_value_at_its_step_and_time(run_dir: Path, tmp_path: Path) -> None:
    record(run_dir, range(200))
    assert len(export_tensorboard(run_dir, tmp_path / "tb")) == 1
    found = seen_by_tensorboard(tmp_path / "tb")
    assert found.keys() == {"train/loss", "eval/accuracy", "system/cpu/utilization"}
    expected = [
        (event.step, dict(event.series())["train/loss"], event.t)
        for event in read_all(run_dir)
        if event.kind == "metric"
    ]
    assert len(expected) == 200
    for (step, value, t), (there_step, there_value, there_t) in zip(
        expected, found["train/loss"], strict=True
    ):
        assert (there_step, there_t) == (step, t)
        assert there_value == pytest.approx(value, rel=1e-6)


def test_attempts_stay_apart_because_tensorboard_drops_repeated_steps(run_dir: Path, tmp_path: Path) -> None:
    record(run_dir, range(10))
    record(run_dir, range(5, 12), resumed_from_step=5)
    export_tensorboard(run_dir, tmp_path / "tb")
    first, second = (seen_by_tensorboard(tmp_path / f"tb/attempt-{n}")["train/loss"] for n in (1, 2))
    assert [step for step, _, _ in first] == list(range(10))
    assert [step for step, _, _ in second] == list(range(5, 12))
    import_tensorboard(tmp_path / "tb", tmp_path / "back")
    here, back = load_curves(run_dir), load_curves(tmp_path / "back")
    assert here.names() == back.names()
    for attempt in (1, 2):
        steps, steps_back = (
            [(b.first_step, b.last_step) for b in curves.attempts("train/loss")[attempt].buckets]
            for curves in (here, back)
        )
        assert steps == steps_back


def test_values_that_are_not_finite_arrive(run_dir: Path, tmp_path: Path) -> None:
    with Reporter(run_dir, telemetry_seconds=0) as reporter:
        for step, value in enumerate([float("nan"), float("inf"), float("-inf"), 1e300, 0.5]):
            reporter.metric("loss", value, step)
    export_tensorboard(run_dir, tmp_path / "tb")
    values = [value for _, value, _ in seen_by_tensorboard(tmp_path / "tb")["train/loss"]]
    assert str(values) == "[nan, inf, -inf, inf, 0.5]"


def test_a_folder_with_event_files_is_not_written_to(run_dir: Path, tmp_path: Path) -> None:
    record(run_dir, range(2))
    export_tensorboard(run_dir, tmp_path / "tb")
    with raises(ValueError, code="folder_not_empty"):
        export_tensorboard(run_dir, tmp_path / "tb")


def test_what_torch_writes_becomes_a_run(run_dir: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.tensorboard import SummaryWriter

    for split in ("train", "validation"):
        with SummaryWriter(str(tmp_path / "logs" / split)) as writer:
            for step in range(50):
                writer.add_scalar("loss", 1 / (step + 1), step, walltime=1_700_000_000.0 + step)
            writer.add_text("note", "not a number")
            writer.add_histogram("weights", torch.tensor([0.0, 1.0]), 1)
    assert import_tensorboard(tmp_path / "logs", run_dir) == 100
    for name in ("train/loss", "eval/loss"):
        points = [
            (event.step, dict(event.series()).get(name), event.t)
            for event in read_all(run_dir)
            if name in dict(event.series())
        ]
        assert [(step, t) for step, _, t in points] == [(n, 1_700_000_000.0 + n) for n in range(50)]
        assert [value for _, value, _ in points] == pytest.approx([1 / (n + 1) for n in range(50)], rel=1e-6)
    latest = load_latest(run_dir)
    assert latest is not None
    assert (latest["status"], latest["step"]) == ("ended", 49)
    assert latest["values"]["eval/loss"]["value"] == pytest.approx(0.02)


def test_scalars_that_are_stored_as_tensors_are_read(run_dir: Path, tmp_path: Path) -> None:
    import numpy as np
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboard.util import tensor_util

    writer = EventFileWriter(str(tmp_path / "logs"))
    for step, kind in enumerate((np.float32, np.float64, np.int32, np.int64)):
        value = summary_pb2.Summary.Value(
            tag="epoch_loss", tensor=tensor_util.make_tensor_proto(kind(step + 2))
        )
        writer.add_event(
            event_pb2.Event(wall_time=1.0 + step, step=step, summary=summary_pb2.Summary(value=[value]))
        )
    writer.close()
    import_tensorboard(tmp_path / "logs", run_dir)
    points = [(event.step, value) for event in read_all(run_dir) for _, value in event.series()]
    assert points == [(0, 2.0), (1, 3.0), (2, 4.0), (3, 5.0)]


def test_a_file_cut_off_or_damaged_anywhere_gives_what_comes_before() -> None:
    file = io.BytesIO()
    write_version(file, 1.0)
    ends = [file.tell()]
    for step in range(5):
        write_scalars(file, Scalars(1.0 + step, step, {"loss": float(step), "äöü/x": -1.0}))
        ends.append(file.tell())
    whole = file.getvalue()
    for length in range(len(whole) + 1):
        found = [scalars.step for scalars in read_scalars(io.BytesIO(whole[:length]))]
        assert found == list(range(sum(end <= length for end in ends[1:])))
    for at in range(0, len(whole), 7):
        damaged = whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :]
        found = [scalars.step for scalars in read_scalars(io.BytesIO(damaged))]
        assert found == list(range(len(found)))
        assert len(found) <= sum(end <= at for end in ends[1:]) or at < ends[0]


def test_negative_steps_and_large_ones_survive() -> None:
    file = io.BytesIO()
    for step in (-1, 0, 1 << 40):
        write_scalars(file, Scalars(1.0, step, {"x": 1.0}))
    file.seek(0)
    assert [scalars.step for scalars in read_scalars(file)] == [-1, 0, 1 << 40]


def test_a_folder_that_holds_a_run_or_nothing_is_refused(run_dir: Path, tmp_path: Path) -> None:
    with raises(ValueError, code="no_series"):
        import_tensorboard(tmp_path, run_dir)
    assert not run_dir.exists()
    record(run_dir, range(2))
    export_tensorboard(run_dir, tmp_path / "tb")
    with raises(ValueError, code="folder_not_empty"):
        import_tensorboard(tmp_path / "tb", run_dir)


def test_the_command_exports_and_imports(run_dir: Path, tmp_path: Path) -> None:
    pytest.importorskip("typer")
    record(run_dir, range(3))

    def bloom(*arguments: object) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "gpubloom.cli", "runs", "tensorboard", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    exported = bloom("export", run_dir, tmp_path / "tb")
    assert (exported.returncode, "tensorboard --logdir" in exported.stdout) == (0, True), exported.stderr
    imported = bloom("import", tmp_path / "tb", tmp_path / "back")
    assert (imported.returncode, "bloom runs watch" in imported.stdout) == (0, True), imported.stderr
    assert load_curves(tmp_path / "back").names() == load_curves(run_dir).names()
    refused = bloom("export", tmp_path / "nothing", tmp_path / "tb2")
    assert (refused.returncode, "no series" in refused.stderr) == (2, True)
