"""What it costs a step to keep its Metaflow card up to date: @traincard beside Metaflow's own refresh.

    python bench/metaflow_card.py [seconds]

Two runs of the same step, ten metrics a step, an update every 4 seconds. CPU seconds are those of the step's
process beyond its loop, and of the processes it starts.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

_FLOW = """
import json, os, resource, time
from pathlib import Path
from metaflow import FlowSpec, Parameter, card, current, step, traincard
from metaflow_traincard import Reporter
from gpubloom.traincard import Reading, snapshot

OURS = os.environ["WAY"] == "traincard"
decorate = traincard if OURS else card(type="train", id="traincard", refresh_interval=1)


class CardFlow(FlowSpec):
    @decorate
    @step
    def start(self):
        reporter = Reporter(None if OURS else "run", telemetry_seconds=0)
        reading = Reading(reporter.run_dir)
        seen, seconds, turns, due = {}, [], 0, time.monotonic() + 4
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        end = time.monotonic() + float(os.environ["SECONDS"])
        number = 0
        while time.monotonic() < end:
            reporter.metrics({f"series_{i}": number * 0.37 + i for i in range(10)}, step=number)
            number += 1
            time.sleep(0.05)
            if not OURS and time.monotonic() >= due:
                due += 4
                turns += 1
                began = time.perf_counter()
                reading.update()
                current.card["traincard"].refresh(snapshot(reading, points=200))
                seconds.append(time.perf_counter() - began)
            if OURS and number % 20 == 0:
                for path in Path(os.environ["HOME_FOLDER"]).rglob("train-*.data.json"):
                    live = json.loads(path.read_text())["data"]["live"]
                    seen[live["updates"]] = live
        if OURS:
            # An update says what the one before it cost; the first one also wrote the page.
            costs = [live["last_cpu_milliseconds"] for turn, live in sorted(seen.items()) if turn > 2]
            seconds = [sum(cost.values()) / 1000 for cost in costs]
            writes = [(cost["read"], cost["make"], cost["write"]) for cost in costs]
            turns = max(seen)
        else:
            # The last process that was started must end to be counted.
            time.sleep(3)
            writes = []
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        children = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print("RESULT", json.dumps({"turns": turns, "own_ms": [round(s * 1000, 2) for s in seconds],
              "read_make_write_ms": writes, "children_cpu_s": round(children, 2), "steps": number}))
        self.next(self.end)

    @step
    def end(self):
        pass


if __name__ == "__main__":
    CardFlow()
"""


def measure(way: str, seconds: str) -> dict[str, object]:
    """One run of the step."""
    with tempfile.TemporaryDirectory() as folder:
        flow = Path(folder, "flow.py")
        flow.write_text(_FLOW)
        environment = {
            **os.environ,
            "WAY": way,
            "SECONDS": seconds,
            "HOME_FOLDER": folder,
            "METAFLOW_HOME": folder,
            "METAFLOW_USER": "bench",
            "METAFLOW_DATASTORE_SYSROOT_LOCAL": folder,
            "METAFLOW_DEFAULT_METADATA": "local",
        }
        done = subprocess.run(
            [sys.executable, str(flow), "--no-pylint", "run"],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        raise SystemExit(done.stdout + done.stderr)
    line = next(line for line in done.stdout.splitlines() if "RESULT" in line)
    found: dict[str, object] = json.loads(line.partition("RESULT ")[2])
    return found


if __name__ == "__main__":
    wanted = sys.argv[1] if len(sys.argv) > 1 else "40"
    for way in ("traincard", "refresh"):
        print(f"{way:10}", measure(way, wanted))
