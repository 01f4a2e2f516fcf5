"""A task that takes no torch: waits as long as it is told to, obeys, answers.

`hold` makes it wait until the test lets go; `result` is its answer, or a number of bytes for a long one; as a
serve task it writes serve.json and ends by itself when the file `.go` says that nobody asks any more. `reads`
are paths that it looks for.
"""

TOY_TASK = """\
import json, os, sys, time
from pathlib import Path
from gpubloom.traincard import Reporter, RunLock

home = Path(__file__).parent
toy = json.loads((home / "toy.json").read_text())
task = json.loads((home / "task.json").read_text())
attempt = os.environ["BLOOM_ATTEMPT"]
lock = RunLock.acquire(home)
token = home / "hub-token"
seen = {
    "devices": os.environ["CUDA_VISIBLE_DEVICES"],
    "token": token.read_text() if token.exists() else None,
    "token_mode": oct(token.stat().st_mode & 0o777) if token.exists() else None,
    "result_before": (home / "result.json").exists(),
    "read": [path for path in toy.get("reads", []) if Path(path).exists()],
}
if toy.get("fails"):
    sys.stderr.write(toy["fails"] + "\\n")
    raise SystemExit(2)
with Reporter(home, lock=lock) as reporter:
    reporter.phase(task["kind"])
    if task["kind"] == "serve":
        (home / "serve.json").write_text(json.dumps({"v": 1, "port": 1, "token": "t", "models": ["model"]}))
    (home / "new").write_text(json.dumps(seen))
    (home / "new").replace(home / f"seen-{attempt}.json")
    status = "completed"
    while (toy.get("hold") or task["kind"] == "serve") and not (home / ".go").exists():
        command = reporter.control.poll()
        if command is not None:
            reporter.applied(command.version)
            if command.want != "run":
                status = "cancelled"
                break
        time.sleep(0.02)
    if status == "completed":
        result = toy.get("result", {"attempt": int(attempt)})
        content = " " * result if isinstance(result, int) else json.dumps(result)
        (home / "new").write_text(content)
        (home / "new").replace(home / "result.json")
    reporter.finish(status)
"""
