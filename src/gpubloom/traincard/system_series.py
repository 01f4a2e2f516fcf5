"""Telemetry for a card: per GPU, per node, and over all of them."""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable
from itertools import islice
from operator import le
from typing import Any

from gpubloom.traincard.number_encoding import decode_number
from gpubloom.traincard.reading import Reading
from gpubloom.traincard.series import Curve
from gpubloom.traincard.thinning import line_of, means_of, shorter, shown

_PREFIX = "system/"

# name: title, unit, how several become one. In the order in which a card shows them.
KNOWN: dict[str, tuple[str, str, str]] = {
    "gpu/utilization": ("GPU utilization", "%", "mean"),
    "gpu/memory_used": ("GPU memory", "bytes", "sum"),
    "gpu/memory_total": ("Total GPU memory", "bytes", "sum"),
    "gpu/temperature": ("GPU temperature", "°C", "max"),
    "gpu/fan": ("GPU fan", "%", "max"),
    "gpu/power": ("GPU power", "W", "sum"),
    "gpu/clock": ("GPU clock", "MHz", "mean"),
    "gpu/memory_clock": ("GPU memory clock", "MHz", "mean"),
    "gpu/slowed_by_heat": ("GPU throttled by temperature", "", "max"),
    "gpu/slowed_by_power": ("GPU throttled by power limit", "", "max"),
    "cpu/utilization": ("CPU", "%", "mean"),
    "ram/used": ("RAM", "bytes", "sum"),
    "ram/total": ("Total RAM", "bytes", "sum"),
    "process/ram": ("RAM of the training process", "bytes", "sum"),
    "disk/read": ("Disk read", "bytes/s", "sum"),
    "disk/written": ("Disk write", "bytes/s", "sum"),
    "disk/used": ("Disk used", "bytes", "sum"),
    "disk/total": ("Total disk", "bytes", "sum"),
    "network/received": ("Network received", "bytes/s", "sum"),
    "network/sent": ("Network sent", "bytes/s", "sum"),
}
_HOW: dict[str, Callable[[list[float]], float]] = {"mean": statistics.fmean, "sum": sum, "max": max}


def system_section(reading: Reading, points: int) -> dict[str, Any]:
    """The snapshot's `system`."""
    lines: dict[str, list[tuple[str, int | None, Curve]]] = defaultdict(list)
    for rank in reading.curves.ranks():
        host = reading.ranks[rank].host or f"rank {rank}"
        for full in reading.curves.names(rank):
            if full.startswith(_PREFIX):
                name, gpu = _without_gpu(full.removeprefix(_PREFIX))
                for curve in reading.curves.attempts(full, rank).values():
                    lines[name].append((host, gpu, curve))
    order = {name: index for index, name in enumerate(KNOWN)}
    names = sorted(lines, key=lambda name: (order.get(name, len(order)), name))
    return {"nodes": nodes(reading), "series": [_series(name, lines[name], points) for name in names]}


def _without_gpu(name: str) -> tuple[str, int | None]:
    head, _, rest = name.partition("/")
    index, _, what = rest.partition("/")
    return (f"gpu/{what}", int(index)) if head == "gpu" and index.isdecimal() and what else (name, None)


def _series(name: str, found: list[tuple[str, int | None, Curve]], points: int) -> dict[str, Any]:
    title, unit, how = KNOWN.get(name, (name, "", "mean"))
    devices = {(host, gpu) for host, gpu, _ in found}
    by_device: dict[tuple[str, int | None], dict[str, Any]] = {}
    for host, gpu, curve in found:
        drawn = line_of(curve, points)
        # Attempts follow each other in time: one line, with a gap where nobody looked.
        before = by_device.setdefault((host, gpu), {"host": host, "gpu": gpu, **_no_points()})
        _append_line(before, drawn)
    for line in by_device.values():
        line["x"] = _never_back(line["x"])
    return {
        "name": name,
        "title": title,
        "unit": unit,
        "lines": [
            by_device[index]
            for index in sorted(by_device, key=lambda p: (p[0], -1 if p[1] is None else p[1]))
        ],
        "aggregate": _aggregate(found, how, points) if len(devices) > 1 else None,
    }


def _no_points() -> dict[str, Any]:
    return {"x": [], "y": [], "low": [], "high": [], "n": [], "gaps": [], "last": None}


def _append_line(line: dict[str, Any], drawn: dict[str, Any]) -> None:
    if not drawn["x"]:
        return
    gap = len(line["x"]) > 0
    if line["low"] or drawn["low"]:
        # Only one of them may be thinned: of the other, every point is its own lowest and highest.
        for name in ("low", "high"):
            before = line[name] or line["y"]
            line[name] = before + [None] * gap + (drawn[name] or drawn["y"])
        ones = [1] * len(line["y"])
        line["n"] = (line["n"] or ones) + [0] * gap + (drawn["n"] or [1] * len(drawn["y"]))
    line["gaps"] += drawn["gaps"]
    line["x"] += drawn["x"][:gap] + drawn["x"]
    line["y"] += [None] * gap + drawn["y"]
    line["last"] = drawn["last"]


def _never_back(times: list[float]) -> list[float]:
    """A clock that was set back would draw a line to the left: what came later is shown later."""
    if all(map(le, times, islice(times, 1, None))):
        return [round(t, 1) for t in times]
    shown: list[float] = []
    shift = 0.0
    for t in times:
        if shown and t + shift < shown[-1]:
            shift = shown[-1] - t
        shown.append(round(t + shift, 1))
    return shown


def _aggregate(found: list[tuple[str, int | None, Curve]], how: str, points: int) -> dict[str, Any]:
    """All lines as one, in cells of time as wide as the coarsest line needs: each has its say in each."""
    series = [((host, gpu), list(means_of(curve))) for host, gpu, curve in found]
    series = [(index, means) for index, means in series if means]
    if not series:
        return {"how": how, **_no_points()}
    begin = min(means[0][0] for _, means in series)
    end = max(means[-1][0] for _, means in series)
    fewest = min(len(means) for _, means in series)
    cells = max(1, min(points, fewest))
    width = max((end - begin) / cells, 1e-9)
    table: dict[int, dict[Any, list[float]]] = defaultdict(lambda: defaultdict(list))
    for index, means in series:
        for t, value in means:
            table[min(cells - 1, int((t - begin) / width))][index].append(value)
    x = [begin + (cell + 0.5) * width for cell in sorted(table)]
    y = [_HOW[how]([math.fsum(v) / len(v) for v in table[cell].values()]) for cell in sorted(table)]
    newest = {(host, gpu): curve.value[-1] for host, gpu, curve in found if len(curve)}
    return {
        "how": how,
        **_no_points(),
        "x": [round(t, 1) for t in x],
        "y": [shorter(value) for value in y],
        "last": shown(_HOW[how](list(newest.values()))),
    }


def nodes(reading: Reading) -> list[dict[str, Any]]:
    """The machines of a run, each with its ranks, its GPUs and its newest telemetry."""
    found: dict[str, dict[str, Any]] = {}
    for number in sorted(reading.ranks):
        rank = reading.ranks[number]
        host = rank.host or f"rank {number}"
        node = found.setdefault(host, {"host": host, "ranks": [], "gpus": [], "last": {}})
        node["ranks"].append(number)
        if looks := reading.looks.get(number):
            node["last"] = {name: shorter_or_same(value) for name, value in looks[-1][1].items()}
            indices = {_without_gpu(name)[1] for name in node["last"]} - {None}
            names = reading.facts.get(number, {})
            node["gpus"] = [
                {"index": index, "name": names.get(f"gpu/{index}/name")}
                for index in sorted(i for i in indices if i is not None)
            ]
    return list(found.values())


def shorter_or_same(value: Any) -> Any:
    """Numbers as a card shows them, everything else as it is."""
    decoded = decode_number(value)
    return shown(decoded) if isinstance(decoded, float) else decoded
