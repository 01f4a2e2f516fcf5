"""A training that takes no torch: counts steps, saves them, obeys, resumes. Its "weights" are a sum of steps.

`hold_at` makes it wait at a step until the test has done what it wants to do there. `error_at` makes the
first attempt end at a step with the system's error `errno`. `writes` are files that its first attempt writes
into its run directory. `reads` are paths that it tries to read; what it could read is in looked.json.

`toy_files` has a worker write it as train.py.
"""

TOY = """\
import json, os, signal, sys, time
from pathlib import Path
from gpubloom.traincard import Reporter, RunLock

run = Path(__file__).parent
config = json.loads((run / "toy.json").read_text())
lock = RunLock.acquire(run)
if config.get("ignores_control"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("toy training in", run.name, flush=True)
if config.get("fails"):
    raise SystemExit(config["fails"])
if os.environ["BLOOM_ATTEMPT"] == "1":
    for name, text in config.get("writes", {}).items():
        (run / name).write_text(text)
def readable(path):
    try:
        return bool(os.listdir(path) if os.path.isdir(path) else Path(path).read_bytes())
    except OSError:
        return False
if "reads" in config:
    (run / "looked.json").write_text(json.dumps([path for path in config["reads"] if readable(path)]))
with Reporter(run, lock=lock) as reporter:
    step = total = 0
    saved = run / "checkpoints" / "latest.json"
    if saved.exists():
        state = json.loads(saved.read_text())
        step, total = state["step"], state["sum"]
        reporter.resumed(step)
    def save():
        path = run / "checkpoints"
        path.mkdir(exist_ok=True)
        (path / "new").write_text(json.dumps({"step": step, "sum": total}))
        reporter.flush()
        (path / "new").replace(saved)
        (path / f"step-{step:08d}").mkdir(exist_ok=True)
        reporter.checkpoint(path / f"step-{step:08d}", {"size": 1}, step=step)
    status = "completed"
    reporter.phase("train")
    rate = 1.0
    while step < config["steps"]:
        command = None if config.get("ignores_control") else reporter.control.poll()
        if command is not None:
            rate = command.set.get("learning_rate", rate)
            reporter.applied(command.version)
            if command.want != "run":
                status = {"pause": "paused", "cancel": "cancelled"}[command.want]
                break
            if command.save_now:
                save()
        if step == config.get("hold_at") and not (run / ".go").exists():
            time.sleep(0.02)
            continue
        if step == config.get("error_at") and os.environ["BLOOM_ATTEMPT"] == "1":
            raise OSError(config["errno"], os.strerror(config["errno"]))
        step += 1
        total += step
        loss = float("nan") if step >= config.get("nan_from", 10**9) else 1.0 / step
        reporter.metrics({"loss": loss, "learning_rate": rate, "sum": total}, step=step)
        reporter.progress(step, config["steps"])
        if step % config.get("save_every", 5) == 0:
            save()
        time.sleep(config.get("seconds", 0.01))
    if status == "paused":
        save()
    if status == "completed":
        (run / "model").mkdir(exist_ok=True)
        (run / "model" / "config.json").write_text(json.dumps({"sum": total}))
    reporter.finish(status)
"""
