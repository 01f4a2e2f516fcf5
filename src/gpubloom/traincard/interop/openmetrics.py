"""The state of a run as OpenMetrics text, in a file: nothing listens on a port.

Prometheus reads it through node_exporter's textfile collector, or anything that serves a file. Only gauges:
that collector reads the older Prometheus format, and this is the type that both write alike. Series keep
their names as a label, so that ten thousand of them are one family and no two names collide.
"""

import math
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gpubloom.traincard.atomic_write import replace_file
from gpubloom.traincard.layout import RunFiles
from gpubloom.traincard.number_encoding import decode_number

FILE_NAME = "metrics.prom"
_STATUSES = ("running", "completed", "failed", "cancelled", "paused", "preempted", "interrupted", "ended")
_GPU = re.compile(r"gpu/(\d+)/(.+)")

Sample = tuple[Mapping[str, str], Any]


def write_openmetrics(run_dir: str | os.PathLike[str], state: Mapping[str, Any]) -> Path:
    """Replaces traincard/metrics.prom beside latest.json. `state`: what latest.json holds."""
    path = RunFiles(run_dir).folder / FILE_NAME
    replace_file(path, openmetrics_text(state, run=Path(run_dir).absolute().name))
    return path


def openmetrics_text(state: Mapping[str, Any], run: str) -> str:
    """The text of the exposition, which ends in `# EOF`. Values that are unknown are left out."""
    label = {"run": run}

    def one(value: Any) -> list[Sample]:
        return [(label, value)]

    status, values = state.get("status"), state.get("values") or {}
    known = [*_STATUSES, *([] if status in _STATUSES or status is None else [status])]
    families: list[tuple[str, str, Iterable[Sample]]] = [
        ("bloom_run_status", "1 for the current status of the run, 0 for the others.",
         [({**label, "status": name}, int(name == status)) for name in known]),
        ("bloom_run_attempt", "Number of the attempt, starting at 1.", one(state.get("attempt"))),
        ("bloom_run_step", "Last optimizer step.", one(state.get("step"))),
        ("bloom_run_steps_planned", "Planned optimizer steps.", one(state.get("total_steps"))),
        ("bloom_run_epoch", "Completed epochs.", one(state.get("epoch"))),
        ("bloom_run_eta_seconds", "Estimated seconds left.", one(state.get("eta_seconds"))),
        ("bloom_run_started_timestamp_seconds", "Start time of the attempt.", one(state.get("started_at"))),
        ("bloom_run_updated_timestamp_seconds", "Time of the last event.", one(state.get("updated_at"))),
        ("bloom_run_dropped_events", "Number of lost events, by kind.",
         [({**label, "kind": kind}, count) for kind, count in (state.get("dropped") or {}).items()]),
        ("bloom_series_value", "Last value of each series.",
         [({**label, "series": name}, last.get("value")) for name, last in values.items()]),
        ("bloom_series_step", "Step of the last value of each series.",
         [({**label, "series": name}, last.get("step")) for name, last in values.items()]),
        ("bloom_system_value", "Telemetry of the machine.",
         [({**label, **_labels(name)}, value) for name, value in (state.get("system") or {}).items()]),
    ]  # fmt: skip
    lines: list[str] = []
    for name, meaning, samples in families:
        drawn = [line for labels, value in samples if (line := _sample(name, labels, value))]
        if drawn:
            lines += [f"# TYPE {name} gauge", f"# HELP {name} {_escaped(meaning)}", *sorted(set(drawn))]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _labels(name: str) -> dict[str, str]:
    found = _GPU.fullmatch(name)
    return {"name": f"gpu/{found[2]}", "gpu": found[1]} if found else {"name": name}


def _sample(name: str, labels: Mapping[str, str], value: Any) -> str | None:
    number = decode_number(value)
    if isinstance(number, bool) or not isinstance(number, int | float):
        return None
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{inside}}} {_written(number)}"


def _written(number: int | float) -> str:
    if math.isnan(number):
        return "NaN"
    return ("+Inf" if number > 0 else "-Inf") if math.isinf(number) else repr(number)


def _escaped(text: str) -> str:
    # A lone surrogate, as a name with odd bytes may hold, has no UTF-8.
    clean = text.encode("utf-8", "replace").decode()
    return clean.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
