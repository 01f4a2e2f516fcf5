"""A run for TensorBoard, and TensorBoard's logs as a run.

A run with several attempts becomes several of TensorBoard's runs (`attempt-1`, `attempt-2`), because it
throws away steps that are repeated. The other way round, those become attempts again; any other subfolder is
a prefix of the names in it, so `train/` and `validation/` become what they mean.
"""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpubloom.errors import InputError
from gpubloom.traincard.atomic_write import replace_file
from gpubloom.traincard.interop.event_files import Scalars, read_scalars, write_scalars, write_version
from gpubloom.traincard.layout import PROTOCOL_VERSION, RunFiles, StreamId
from gpubloom.traincard.number_encoding import encode_number, to_json
from gpubloom.traincard.reader import RunEvent, read_all
from gpubloom.traincard.state import RunState

_ATTEMPT = re.compile(r"attempt-(\d+)")


def export_tensorboard(run_dir: str | os.PathLike[str], out_dir: str | os.PathLike[str]) -> list[Path]:
    """Writes rank 0's series as event files; returns them. `tensorboard --logdir OUT` shows them.

    ValueError: nothing to export, or `out_dir` has event files already.
    """
    out = Path(out_dir)
    if next(out.rglob("*tfevents*"), None) is not None:
        raise InputError(
            "folder_not_empty",
            f"{out} already contains event files, which TensorBoard would mix with the new ones; "
            "choose an empty folder",
        )
    several = len({event.attempt for event in read_all(run_dir, ranks=[0]) if event.kind == "start"}) > 1
    written: list[Path] = []
    file = None
    try:
        for event in read_all(run_dir, ranks=[0]):
            values = dict(event.series())
            if not values:
                continue
            folder = out / f"attempt-{event.attempt}" if several else out
            if not written or written[-1].parent != folder:
                if file is not None:
                    file.close()
                folder.mkdir(parents=True, exist_ok=True)
                written.append(folder / f"events.out.tfevents.{int(event.t)}.bloom")
                file = written[-1].open("wb")
                write_version(file, event.t)
            assert file is not None
            write_scalars(file, Scalars(event.t, _step(event), values))
    finally:
        if file is not None:
            file.close()
    if not written:
        raise InputError("no_series", f"{run_dir} has no series to export")
    return written


def _step(event: RunEvent) -> int:
    # Telemetry belongs to a time, not to a step; TensorBoard needs one and can draw over time instead.
    return event.step if event.step is not None else event.seq


def import_tensorboard(logdir: str | os.PathLike[str], run_dir: str | os.PathLike[str]) -> int:
    """Makes a run directory of TensorBoard's scalars; returns how many values it holds.

    ValueError: no scalars there, or `run_dir` holds a run already.
    """
    files = RunFiles(run_dir)
    if files.folder.exists():
        raise InputError("folder_not_empty", f"{run_dir} already contains a run; choose a new folder")
    attempts: dict[int, list[tuple[float, int, str, float]]] = {}
    for path in sorted(Path(logdir).rglob("*tfevents*")):
        attempt, prefix = _attempt_and_prefix(path.parent.relative_to(logdir))
        for scalars in _scalars_of(path):
            found = attempts.setdefault(attempt, [])
            found.extend((scalars.time, scalars.step, prefix + tag, v) for tag, v in scalars.values.items())
    if not attempts:
        raise InputError("no_series", f"{logdir} has no event files with scalars")
    files.segments.mkdir(parents=True)
    state = RunState()
    for number, attempt in enumerate(sorted(attempts), start=1):
        values = sorted(attempts[attempt], key=lambda value: value[0])
        records = list(_records(values, number, is_last=number == len(attempts)))
        lines = []
        for seq, record in enumerate(records):
            lines.append(to_json({"seq": seq, **record}) + "\n")
            state.apply({"seq": seq, **record})
        replace_file(files.segment(StreamId(number, 0, 1)), "".join(lines))
    replace_file(files.latest, to_json(state.latest()))
    return sum(len(values) for values in attempts.values())


def _scalars_of(path: Path) -> Iterator[Scalars]:
    with path.open("rb") as file:
        yield from read_scalars(file)


def _attempt_and_prefix(folder: Path) -> tuple[int, str]:
    parts = [part for part in folder.parts if not _ATTEMPT.fullmatch(part)]
    numbers = [int(found[1]) for part in folder.parts if (found := _ATTEMPT.fullmatch(part))]
    return (numbers[0] if numbers else 1), "".join(f"{part}/" for part in parts)


def _records(
    values: list[tuple[float, int, str, float]], attempt: int, is_last: bool
) -> Iterator[dict[str, Any]]:
    first, last = values[0][0], values[-1][0]
    yield {
        "t": round(first, 4), "kind": "start", "v": PROTOCOL_VERSION, "attempt": attempt, "rank": 0,
        "segment": 1, "restart_count": attempt - 1, "host": "tensorboard", "pid": 0, "world_size": 1,
    }  # fmt: skip
    yield {"t": round(first, 4), "kind": "describe", "facts": {"imported_at": round(time.time(), 1)}}
    record: dict[str, Any] = {}
    for t, step, tag, value in values:
        name = tag.removeprefix("system/")
        kind = "system" if name != tag else "metric"
        same = record and (record["kind"], record["step"], record["t"]) == (kind, step, round(t, 4))
        if not same or name in record["values"]:
            if record:
                yield record
            record = {"t": round(t, 4), "kind": kind, "step": step, "values": {}}
        record["values"][name] = encode_number(value)
    yield record
    yield {"t": round(last, 4), "kind": "end", "status": "ended", "message": "imported" if is_last else None}
