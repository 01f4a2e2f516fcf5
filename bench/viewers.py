"""What fifty people who watch a job cost its training.

    python bench/viewers.py

The same training runs with nobody watching and with fifty open streams, in turns; the figure is the ratio of
the median times of a step. Also: how long a point takes from being reported until a viewer has it.
"""

import json
import statistics
import threading
import time

import httpx2
from live_app import LiveApp, start_app

VIEWERS = 50
STEPS = 300
ROUNDS = 3


class Viewer(threading.Thread):
    """One open stream; notes how old each newest point is when it arrives."""

    def __init__(self, app: LiveApp, job_id: str) -> None:
        super().__init__(daemon=True)
        self._app = app
        self._address = f"/api/jobs/{job_id}/stream?after=0"
        self.ages: list[float] = []

    def run(self) -> None:
        client = self._app.client
        with (
            httpx2.Client(base_url=client.base_url, cookies=client.cookies, timeout=None) as own,
            own.stream("GET", self._address) as stream,
        ):
            for line in stream.iter_lines():
                if not line.startswith("data:"):
                    continue
                data = json.loads(line[5:])
                times = [s["time"][-1] for s in data.get("series", []) if s["name"] == "train/loss"]
                self.ages += [time.time() - moment for moment in times]
                if data.get("job", {}).get("status") in {"completed", "failed", "cancelled"}:
                    return


def step_seconds(app: LiveApp, viewers: int) -> tuple[float, list[float]]:
    """Train once; median seconds of a step, and the ages of points at the viewers."""
    job_id = app.start_job(batch_size=4, max_steps=STEPS, epochs=100)
    watching = [Viewer(app, job_id) for _ in range(viewers)]
    for viewer in watching:
        viewer.start()
    app.wait(job_id, "completed")
    for viewer in watching:
        viewer.join(30)
    rows = app.client.get(f"/api/training-jobs/{job_id}/metrics").json()["items"]
    # The first steps warm up; tokens per step are the same in both runs.
    rates = [row["throughput"] for row in rows[50:]]
    return 4 * 128 / statistics.median(rates), [age for viewer in watching for age in viewer.ages]


def main() -> None:
    alone: list[float] = []
    watched: list[float] = []
    ages: list[float] = []
    with start_app() as app:
        step_seconds(app, 0)
        for _ in range(ROUNDS):
            alone.append(step_seconds(app, 0)[0])
            seconds, seen = step_seconds(app, VIEWERS)
            watched.append(seconds)
            ages += seen
    ages.sort()
    print(f"one step: {statistics.median(alone) * 1000:.2f} ms alone, ", end="")
    print(f"{statistics.median(watched) * 1000:.2f} ms with {VIEWERS} viewers")
    cost = statistics.median(watched) / statistics.median(alone) - 1
    print(f"cost of {VIEWERS} viewers: {cost * 100:+.1f} %")
    print(
        f"a point is with a viewer after {statistics.median(ages):.2f} s (median), "
        f"{ages[int(len(ages) * 0.99)]:.2f} s (99 of 100) of being reported"
    )


if __name__ == "__main__":
    main()
