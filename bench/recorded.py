"""What was measured on this machine before: one file for each kind of machine, the last run at its end."""

import json
import os
import platform
import re
import time
from dataclasses import asdict, dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "results"
KEPT = 10
# Less is noise.
WORTH_SAYING = 0.10


@dataclass(frozen=True)
class Row:
    """One figure. `higher`: whether more is better."""

    name: str
    value: float
    unit: str
    higher: bool = False

    def times_slower(self, before: "Row") -> float:
        """1.0: as before; 1.2: takes a fifth longer, or gets a sixth less done."""
        if min(self.value, before.value) <= 0:
            return 1.0
        return before.value / self.value if self.higher else self.value / before.value


def machine() -> str:
    """The kind of machine, as the name of a file."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists() and (found := re.search(r"model name\s*:\s*(.+)", cpuinfo.read_text())):
        model = found[1]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return re.sub(r"[^a-z0-9]+", "-", f"{model} {cores} cores".lower()).strip("-")


def last(file: Path) -> dict[str, Row]:
    """The rows of the last run that was recorded, by name; none if there is no such run."""
    if not file.exists():
        return {}
    rows = json.loads(file.read_text(encoding="utf-8"))["runs"][-1]["rows"]
    return {row["name"]: Row(**row) for row in rows}


def record(file: Path, rows: list[Row], about: dict[str, object]) -> None:
    """Adds a run to the file; the oldest ones are dropped."""
    runs = json.loads(file.read_text(encoding="utf-8"))["runs"] if file.exists() else []
    rounded = [asdict(row) | {"value": float(f"{row.value:.4g}")} for row in rows]
    runs = [*runs, {"when": time.strftime("%Y-%m-%d %H:%M"), **about, "rows": rounded}][-KEPT:]
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"machine": file.stem, "runs": runs}, indent=1) + "\n", encoding="utf-8")


def table(rows: list[Row], before: dict[str, Row]) -> tuple[str, list[str]]:
    """The figures beside the last ones, and the names of those that became slower."""
    slower = []
    lines = [f"{'':<46}{'now':>12}{'last':>12}  {'':<10}{'times slower':>12}"]
    for row in rows:
        line = f"{row.name:<46}{row.value:>12,.4g}"
        if (old := before.get(row.name)) is None:
            lines.append(f"{line}{'-':>12}  {row.unit}")
            continue
        ratio = row.times_slower(old)
        mark = "  SLOWER" if ratio > 1 + WORTH_SAYING else ""
        slower += [row.name] if mark else []
        lines.append(f"{line}{old.value:>12,.4g}  {row.unit:<10}{ratio:>12.2f}{mark}")
    return "\n".join(lines), slower
