"""A run that a Reporter sends, and what of it arrived."""

from pathlib import Path

import httpx2

from gpubloom.traincard import read_all
from tests.live_server import LiveServer
from tests.server.installation import Installation

SCRIPT = """
import os, sys, time
from pathlib import Path
from gpubloom.traincard import Reporter
with Reporter(sys.argv[1], project="Sweep", telemetry_seconds=0, segment_bytes=20_000) as reporter:
    reporter.describe({"config": {"lr": 0.5}})
    step = 0
    while not Path(sys.argv[2]).exists():
        step += 1
        reporter.metrics({"train/loss": 1 / step}, step=step)
        time.sleep(float(os.environ.get("STEP_SECONDS", "0.03")))
"""


def add_token(server: LiveServer) -> str:
    """An API token of Ada, who is new on this server."""
    installation = Installation(server.home, f"sqlite+aiosqlite:///{server.home / 'bloom.db'}")
    return installation.add_token(installation.add_user("Ada"))[0]


def events_of(run_dir: Path) -> list[tuple[int, int, str, int | None]]:
    return [(event.attempt, event.seq, event.kind, event.step) for event in read_all(run_dir)]


def arrived(home: Path) -> int:
    return sum(file.stat().st_size for file in (home / "runs").rglob("*") if file.is_file())


def stored(server: LiveServer, token: str, run_id: str) -> tuple[dict[str, str], list[tuple[int, float]]]:
    headers = {"Authorization": f"Bearer {token}"}
    with httpx2.Client(base_url=f"{server.address}/api", headers=headers, timeout=60) as client:
        row = client.get(f"/jobs/{run_id}").json()
        params: dict[str, str | int] = {"series": "train/loss", "points": 5000}
        (curve,) = client.get(f"/jobs/{run_id}/metrics", params=params).json()["series"]
    return row, list(zip(curve["x"], curve["value"], strict=True))
