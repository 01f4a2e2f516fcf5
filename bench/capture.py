"""What the Reporter with capture, the record of what ran and the sender cost a training loop.

    python bench/capture.py [--steps 6000]

A loop of 10 ms steps reports ten metrics, prints one line and logs one record every step: without a Reporter,
with one that captures nothing, with one as it comes, and with one that also sends its run to a server (a
process of its own, which takes every batch). The figures are CPU time: of the training thread, where the
calls are, and of all threads. The exit status says whether capture and sender together take less than 1 % of
a step from the training thread.
"""

import argparse
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpubloom.traincard import Reporter

STEP_SECONDS = 0.010
LIMIT = 0.01
TURNS = 3
WARM_UP_STEPS = 100

SINK = """
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from gpubloom.traincard.sync.upload_batch import UploadBatch
class Sink(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_PUT(self):
        self.answer(json.loads(self.body())["id"], 1)
    def do_POST(self):
        batch = UploadBatch.from_bytes(self.body())
        self.answer(batch.job_id, batch.number + 1)
    def body(self):
        return self.rfile.read(int(self.headers["Content-Length"]))
    def answer(self, run_id, following):
        content = json.dumps({"id": run_id, "project_id": run_id, "next": following}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
    def log_message(self, *_):
        pass
server = ThreadingHTTPServer(("127.0.0.1", 0), Sink)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


def loop(steps: int, *, enabled: bool, capture: bool, project: str | None) -> tuple[float, float]:
    """CPU seconds by step: of this thread, and of all threads."""
    values = {f"metric_{number}": 1.0 / (number + 1) for number in range(10)}
    log = logging.getLogger("bench")
    own = everything = 0.0
    with tempfile.TemporaryDirectory() as folder:
        options = {"enabled": enabled, "capture": capture, "what_ran": capture, "announce": False}
        with Reporter(Path(folder) / "run", project=project, **options) as reporter:
            for step in range(WARM_UP_STEPS + steps):
                if step == WARM_UP_STEPS:
                    own, everything = time.thread_time(), time.process_time()
                began = time.perf_counter()
                reporter.metrics(values, step)
                print(f"step {step}: loss 1.234")
                log.info("step %d done", step)
                time.sleep(max(0.0, STEP_SECONDS - (time.perf_counter() - began)))
            return (time.thread_time() - own) / steps, (time.process_time() - everything) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=6000)
    ways: dict[str, dict[str, bool | str | None]] = {
        "no Reporter": {"enabled": False, "capture": False, "project": None},
        "without capture": {"enabled": True, "capture": False, "project": None},
        "as it comes": {"enabled": True, "capture": True, "project": None},
        "with the sender": {"enabled": True, "capture": True, "project": "Bench"},
    }
    steps = parser.parse_args().steps // (len(ways) * TURNS)
    with subprocess.Popen([sys.executable, "-c", SINK], stdout=subprocess.PIPE, text=True) as sink:
        assert sink.stdout is not None
        os.environ |= {
            "BLOOM_SERVER": f"http://127.0.0.1:{sink.stdout.readline().strip()}",
            "BLOOM_TOKEN": "x",
        }
        terminal = sys.stdout
        # As a terminal would, without drawing: what is measured is ours, not the screen's.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - open until the end
        sys.stderr = sys.stdout
        logging.basicConfig(level=logging.INFO, stream=sys.stdout)
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(TURNS):
            for name, options in ways.items():
                found[name].append(loop(steps, **options))  # type: ignore[arg-type]
        sys.stdout = terminal
        sink.kill()
    medians = {
        name: tuple(statistics.median(column) for column in zip(*some, strict=True))
        for name, some in found.items()
    }
    base_own, base_all = medians["no Reporter"]
    print(f"CPU time by step of 10 ms, medians of {TURNS} turns of {steps} steps")
    for name, (own, everything) in medians.items():
        more = f"{(own - base_own) / STEP_SECONDS:6.2%} | {(everything - base_all) / STEP_SECONDS:6.2%}"
        print(
            f"{name:16} {own * 1e6:6.1f} µs training thread, {everything * 1e6:6.1f} µs all threads | {more}"
        )
    share = (medians["with the sender"][0] - base_own) / STEP_SECONDS
    print(f"With capture and sender, the training thread spends {share:.2%} of a step on the Reporter.")
    sys.exit(0 if share < LIMIT else 1)


if __name__ == "__main__":
    main()
