"""Runs programs that fail and writes what each left.

`python -m tests.traincard.failures.produce cpu|gpu FILE [NAME …]`

A row: the exceptions as the Reporter's process saw them (outermost first), how the process ended, and the end
of what it printed. Paths of the machine are cut out.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.traincard.failures.programs import CPU, GPU

_FRAME = """
import json, sys, socket
from gpubloom.traincard import Reporter
from gpubloom.traincard.failure import evidence_of
def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
reporter = Reporter("run", telemetry_seconds=0)
_hook = sys.excepthook
def _note(kind, problem, trace):
    rows = [e.as_dict() for e in evidence_of(problem)]
    open("evidence.json", "w").write(json.dumps(rows))
    _hook(kind, problem, trace)
sys.excepthook = _note
exec(compile(open("program.py").read(), "program.py", "exec"), globals())
"""
_PATHS = re.compile(r"(/[\w.+-]+)+/(?=[\w.+-]+)")


def clean(text: str) -> str:
    """Without folders of the machine: only the last part of a path says something."""
    text = re.sub(r"0x[0-9a-f]{6,}", "0x0", text)
    return _PATHS.sub(lambda found: "gloo/" if "/gloo/" in found[0] else "", text)


def row(name: str, source: str) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "program.py").write_text(source)
        (Path(folder) / "frame.py").write_text(_FRAME)
        try:
            done = subprocess.run(
                [sys.executable, "frame.py"], cwd=folder, capture_output=True, text=True, timeout=40
            )
            status, output = done.returncode, done.stdout + done.stderr
        except subprocess.TimeoutExpired:
            status, output = 0, "no end within 40 s"
        found = Path(folder) / "evidence.json"
        rows = json.loads(found.read_text()) if found.exists() else []
    for each in rows:
        each["message"] = clean(each["message"])[:1500]
    return {
        "name": name,
        "exceptions": rows,
        "code": None if status < 0 else status,
        "signal": -status if status < 0 else None,
        "output": clean(output)[-600:],
    }


def main() -> None:
    kind, target, *chosen = sys.argv[1:]
    with Path(target).open("w") as file:
        for name, (_, source) in (CPU if kind == "cpu" else GPU).items():
            if chosen and name not in chosen:
                continue
            found = row(name, source)
            file.write(json.dumps(found, ensure_ascii=False) + "\n")
            file.flush()
            head = found["exceptions"][0] if found["exceptions"] else {}  # type: ignore[index]
            print(name, found["code"], found["signal"], str(head)[:160], flush=True)


if __name__ == "__main__":
    main()
