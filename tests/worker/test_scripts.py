"""A worker runs people's own scripts in the sandbox: followed, stopped, resumed, and kept inside."""

import asyncio
import hashlib
import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import select

from gpubloom.providers.base import Reservation
from gpubloom.providers.local.sandbox import why_no_sandbox
from gpubloom.scripts.task import script_task
from gpubloom.server.jobs.files import artifacts, write_files
from gpubloom.server.jobs.tables import Checkpoint, TrainingJob
from gpubloom.server.secrets.tables import Secret
from gpubloom.server.security.secrets import Vault
from gpubloom.worker.confinement import Confinement
from gpubloom.worker.run_directory import AttemptResources, newest_checkpoint, prepare_script, resume_words
from tests.worker.machine import Machine

REASON = why_no_sandbox()
pytestmark = pytest.mark.skipif(REASON is not None, reason=f"no sandbox here: {REASON}")
on_sqlite = pytest.mark.parametrize("kind", ["sqlite"], indirect=True)

# Prints as nanoGPT does, saves, and goes on from what it saved; without torch it starts in no time.
TOY = """\
import json, os, sys, time
settings = {"max_iters": 30, "hold_at": -1, "init_from": "scratch", "fail_at": -1}
for word in sys.argv[1:]:
    key, _, value = word[2:].partition("=")
    settings[key] = int(value) if value.lstrip("-").isdigit() else value
print("Overriding: max_iters = %d" % settings["max_iters"])
first = 0
if settings["init_from"] == "resume":
    first = json.load(open("out/ckpt.pt"))["iter"]
    print("resuming from", first)
os.makedirs("out", exist_ok=True)
for step in range(first, settings["max_iters"] + 1):
    print("iter %d: loss %.4f, time 20.00ms, mfu -100.00%%" % (step, 4 - step / 20))
    if step and step % 10 == 0:
        json.dump({"iter": step}, open("out/new", "w"))
        os.replace("out/new", "out/ckpt.pt")
        print("saving checkpoint to out")
    while step == settings["hold_at"] and not os.path.exists("go"):
        time.sleep(0.02)
    if step == settings["fail_at"]:
        raise ValueError("the data is not there")
    time.sleep(0.02)
"""


def add_script(machine: Machine, script: str = TOY, *arguments: str, **changes: Any) -> UUID:
    task = {"arguments": arguments, "entry": "train.py", **changes.pop("task", {})}
    job = TrainingJob(
        id=uuid4(),
        project_id=machine.project.id,
        user_id=machine.user.id,
        name="my script",
        kind="script",
        config=script_task(task).model_dump(mode="json"),
        **changes,
    )
    files = {str(task["entry"]): script.encode(), "data/words.txt": b"a b c"}
    write_files(machine.run_dir(job.id), files)
    machine.installation.add(job)
    return job.id


RESUMES = {"resumes": True, "resume_arguments": ["--init_from=resume"], "checkpoint_folder": "out"}


@pytest.mark.long
def test_a_script_runs_in_the_sandbox_and_its_progress_checkpoints_and_files_are_there(
    machine: Machine,
) -> None:
    script = add_script(machine, TOY, "--hold_at=20")

    async def scenario() -> None:
        async with machine.worker():
            job = await machine.when(script, lambda job: (job.summary.get("step") or 0) >= 20)
            assert job.summary["total_steps"] == 30
            assert job.summary["eta_seconds"] is not None
            (machine.run_dir(script) / "work" / "go").touch()
            await machine.until(script, "completed", "failed")

    asyncio.run(scenario())
    job = machine.job(script)
    assert (job.status, job.error_message, job.summary["step"]) == ("completed", None, 30)
    losses = machine.losses(script)
    assert sorted(losses) == list(range(31))
    assert losses[30][0][1] == pytest.approx(2.5)
    with machine.installation.session() as session:
        [saved] = session.scalars(select(Checkpoint).where(Checkpoint.job_id == script))
        assert (saved.path, saved.step) == ("work/out/ckpt.pt", 30)
    assert [file.name for file in artifacts(machine.run_dir(script))] == ["go", "out/ckpt.pt"]


@pytest.mark.long
@on_sqlite
def test_a_paused_script_is_told_by_a_signal_and_goes_on_from_its_checkpoint(machine: Machine) -> None:
    script = add_script(machine, TOY, "--hold_at=15", task=RESUMES)

    async def scenario() -> None:
        async with machine.worker():
            await machine.at_step(script, 15)
            await machine.change(script, status="pausing", want="pause")
            await machine.until(script, "paused", "failed")
            (machine.run_dir(script) / "work" / "go").touch()
            await machine.change(script, status="queued", want="run")
            await machine.until(script, "completed", "failed")

    asyncio.run(scenario())
    job = machine.job(script)
    assert (job.status, job.attempt, job.error_message) == ("completed", 2, None)
    output = machine.output(script)
    assert "Resuming from out/ckpt.pt with these added arguments: --init_from=resume" in output
    assert "resuming from 10" in output
    assert job.summary["resumed_from_step"] == 10


@pytest.mark.long
@on_sqlite
def test_a_killed_script_is_tried_again_a_failed_one_is_not_and_a_cancelled_one_ends(
    machine: Machine,
) -> None:
    killed = add_script(machine, TOY, "--hold_at=5")
    failing = add_script(machine, TOY, "--fail_at=3")
    endless = add_script(machine, TOY, "--hold_at=2")

    async def scenario() -> None:
        async with machine.worker():
            await machine.at_step(killed, 5)
            await asyncio.to_thread(machine.kill_training, killed)
            (machine.run_dir(killed) / "work" / "go").touch()
            await machine.until(killed, "completed", "failed")
            await machine.until(failing, "failed", "completed")
            await machine.at_step(endless, 2)
            await machine.change(endless, status="cancelling", want="cancel")
            await machine.until(endless, "cancelled", "failed")

    asyncio.run(scenario())
    assert (machine.job(killed).status, machine.job(killed).attempt) == ("completed", 2)
    assert "has not saved a checkpoint yet, so it starts from the beginning" in machine.output(killed)
    job = machine.job(failing)
    assert (job.status, job.attempt, job.error_code) == ("failed", 1, "script_failed")
    assert job.error_message == "ValueError: the data is not there"
    assert machine.job(endless).status == "cancelled"


@on_sqlite
def test_a_script_whose_name_looks_like_an_option_of_python_is_run(machine: Machine) -> None:
    script = add_script(machine, "open('said', 'w').write(__name__)", task={"entry": "-c.py"})

    async def scenario() -> None:
        async with machine.worker():
            await machine.until(script, "completed", "failed")

    asyncio.run(scenario())
    assert machine.job(script).status == "completed"
    assert (machine.run_dir(script) / "work/said").read_text() == "__main__"


@on_sqlite
def test_a_script_without_progress_completes_and_sees_nothing_of_the_server(machine: Machine) -> None:
    (machine.settings.home / "secret.key").write_text("key")
    home = str(machine.settings.home)
    script = add_script(
        machine,
        "import json, os\n"
        f"facts = dict(server=os.path.exists({home!r}), names=sorted(os.environ), here=os.getcwd(),\n"
        "             data=open('data/words.txt').read(),\n"
        "             processes=len([name for name in os.listdir('/proc') if name.isdigit()]))\n"
        "json.dump(facts, open('facts.json', 'w'))\n",
        task={"environment": {"WANDB_MODE": "offline"}},
    )

    async def scenario() -> None:
        async with machine.worker():
            await machine.until(script, "completed", "failed")

    asyncio.run(scenario())
    assert machine.job(script).status == "completed", machine.output(script)
    facts = json.loads((machine.run_dir(script) / "work" / "facts.json").read_text())
    assert (facts["server"], facts["here"], facts["data"], facts["processes"]) == (
        False,
        "/job/work",
        "a b c",
        2,
    )
    assert "WANDB_MODE" in facts["names"]
    assert not [name for name in facts["names"] if name.startswith("BLOOM_")]


@on_sqlite
def test_without_a_sandbox_a_script_fails_with_what_to_do_unless_an_admin_waived_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = "Bubblewrap is not installed here. Install it."
    monkeypatch.setattr("gpubloom.worker.confinement.why_no_sandbox", lambda: reason)
    sandboxed, free = add_script(machine), add_script(machine, task={"sandboxed": False})

    async def scenario() -> None:
        async with machine.worker():
            await machine.until(sandboxed, "completed", "failed")
            await machine.until(free, "completed", "failed")

    asyncio.run(scenario())
    job = machine.job(sandboxed)
    assert (job.status, job.error_message) == (
        "failed",
        f"The script cannot run on the server's machine: {reason}",
    )
    assert machine.job(free).status == "completed", machine.output(free)
    assert machine.job(free).summary["step"] == 30


@on_sqlite
def test_a_script_that_runs_for_too_long_is_ended(machine: Machine) -> None:
    script = add_script(machine, TOY, "--hold_at=1", max_hours=1 / 3600)

    async def scenario() -> None:
        async with machine.worker():
            await machine.until(script, "completed", "failed")

    asyncio.run(scenario())
    assert machine.job(script).error_code == "time_limit"


def test_what_is_added_to_resume_is_the_newest_checkpoint_of_the_script_itself(tmp_path: Path) -> None:
    write_files(tmp_path, {"train.py": b"", "pretrained.pt": b"brought"})
    path = {"resumes": True, "resume_arguments": ["--resume_from_checkpoint=PATH"]}
    task = script_task(path)
    assert newest_checkpoint(tmp_path, task) is None
    assert resume_words(tmp_path, task, 1) == ((), "")
    assert resume_words(tmp_path, task, 2)[0] == ()
    for step in (500, 1000):
        folder = tmp_path / "work" / "out" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(b"x")
    words, note = resume_words(tmp_path, task, 2)
    assert words == ("--resume_from_checkpoint=out/checkpoint-1000",)
    assert "--resume_from_checkpoint=out/checkpoint-1000" in note
    given = script_task({**path, "arguments": words})
    assert resume_words(tmp_path, given, 2)[0] == ()
    assert "starts from the beginning" in resume_words(tmp_path, script_task({}), 2)[1]


@on_sqlite
def test_a_sandboxed_scripts_variables_do_not_reach_what_starts_it(machine: Machine) -> None:
    script = add_script(machine, task={"environment": {"LD_PRELOAD": "evil.so"}}, attempt=1)
    with Reservation([], [], {}) as nothing:
        confinement = Confinement(machine.settings.home)
        spec = prepare_script(
            machine.run_dir(script), machine.job(script), AttemptResources(nothing, confinement)
        )
    assert spec.environment == {}
    assert spec.folder == "work"


@on_sqlite
def test_a_named_dataset_lies_beside_the_script_and_no_link_leads_us_astray(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cached = machine.settings.home / "cache" / "datasets" / "small"
    cached.mkdir(parents=True)
    with serve_file(b"once upon a time") as address:
        table = tmp_path / "datasets.json"
        table.write_text(
            json.dumps([{"name": "small", "files": [{"name": "input.txt", "address": address}]}])
        )
        monkeypatch.setenv("BLOOM_DATASETS", str(table))
        script = add_script(machine, task={"datasets": ["small"]}, attempt=1)
        outside = tmp_path / "elsewhere"
        outside.mkdir()
        run_dir = machine.run_dir(script)
        shutil.rmtree(run_dir / "work" / "data")
        (run_dir / "work" / "data").symlink_to(outside)
        with Reservation([], [], {}) as nothing:
            prepare_script(
                run_dir, machine.job(script), AttemptResources(nothing, Confinement(machine.settings.home))
            )
    assert (run_dir / "work" / "data" / "small" / "input.txt").read_text() == "once upon a time"
    assert list(outside.iterdir()) == []
    assert "data/small/input.txt" not in {file.name for file in artifacts(run_dir)}


@contextmanager
def serve_file(content: bytes) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Not into the test's output."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/input.txt"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


REPORTS = """\
import os, sys, time
from pathlib import Path
from gpubloom.traincard import Reporter
with Reporter(%s) as reporter:
    reporter.describe({"global_batch_size": 8})
    reporter.phase("train")
    for step in range(1, 21):
        reporter.metrics({"loss": 4 - step / 10, "learning_rate": 1e-3}, step)
        reporter.progress(step, total_steps=20)
        if step == 10:
            Path("out").mkdir()
            Path("out/ten.pt").write_bytes(b"weights")
            reporter.checkpoint("out/ten.pt", step=10, metrics={"eval/loss": 2.0})
            reporter.log("half of it is done")
            while not Path("go").exists():
                time.sleep(0.02)
    print("the files of the run belong in", reporter.run_dir)
"""


@pytest.mark.long
@pytest.mark.parametrize("bubblewrap", ["with", "without"])
@pytest.mark.parametrize("folder", ["", "'results/first'"], ids=["no folder", "folder of its own"])
@on_sqlite
def test_a_reporter_in_a_script_reaches_the_page_while_it_runs(
    machine: Machine, folder: str, bubblewrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if bubblewrap == "without":
        which = shutil.which
        monkeypatch.setattr(
            "gpubloom.providers.local.sandbox.shutil.which",
            lambda name: None if name == "bwrap" else which(name),
        )
    script = add_script(machine, REPORTS % folder)

    async def scenario() -> None:
        async with machine.worker():
            job = await machine.when(script, lambda job: (job.summary.get("step") or 0) >= 10)
            assert (job.status, job.summary["total_steps"], job.summary["phase"]) == ("running", 20, "train")
            assert sorted(machine.losses(script)) == list(range(1, 11))
            with machine.installation.session() as session:
                [saved] = session.scalars(select(Checkpoint).where(Checkpoint.job_id == script))
                assert (saved.path, saved.step) == ("work/out/ten.pt", 10)
            (machine.run_dir(script) / "work" / "go").touch()
            await machine.until(script, "completed", "failed")

    asyncio.run(scenario())
    job = machine.job(script)
    assert (job.status, job.error_message, job.summary["step"]) == ("completed", None, 20)
    assert machine.losses(script)[20][0][1] == pytest.approx(2.0)
    where = PurePosixPath("/job", "work", "results", "first") if folder else "/job"
    assert f"the files of the run belong in {where}\n" in machine.output(script)
    assert not list((machine.run_dir(script) / "work").rglob("events.jsonl")), "the events are in one place"


PLANTS = """\
import os, signal
import gpubloom.traincard
for name in ("lock", "events.jsonl", ".latest.json.1.1.tmp"):
    os.symlink(VICTIM, "/job/traincard/" + name)
os.mkfifo("/job/traincard/latest.json")
open("train.py", "w").write("for i in range(1, 6): print('iter %d: loss 2.0, time 20.00ms' % i)")
os.kill(os.getpid(), signal.SIGKILL)
"""


@on_sqlite
def test_what_a_script_puts_in_the_place_of_events_is_not_written_through(machine: Machine) -> None:
    """The second attempt has no Reporter, so the agent outside writes the events of what it prints."""
    victim = machine.settings.home / "victim"
    victim.write_text("not for scripts")
    script = add_script(machine, f"VICTIM = {str(victim)!r}\n{PLANTS}")

    async def scenario() -> None:
        async with machine.worker():
            await machine.until(script, "completed", "failed")

    asyncio.run(scenario())
    job = machine.job(script)
    assert (job.status, job.attempt) == ("completed", 2), machine.output(script)
    assert victim.read_text() == "not for scripts"
    assert sorted(machine.losses(script)) == [1, 2, 3, 4, 5]


READS_SECRETS = """\
import hashlib, os
print("HF_TOKEN", hashlib.sha256(os.environ["HF_TOKEN"].encode()).hexdigest())
print("OTHER" in os.environ)
"""


@on_sqlite
def test_a_script_gets_the_secrets_of_its_job_and_nothing_on_the_disk_keeps_them(machine: Machine) -> None:
    vault = Vault.of(machine.settings.home)
    for project_id, value in ((None, "mine"), (machine.project.id, "the-projects-value")):
        sealed = vault.seal(value, f"secret:{machine.user.id}:{project_id or ''}:HF_TOKEN")
        row = {"user_id": machine.user.id, "project_id": project_id, "name": "HF_TOKEN", "sealed": sealed}
        machine.installation.add(Secret(id=uuid4(), **row))
    script = add_script(machine, READS_SECRETS, secrets=["HF_TOKEN"])
    without = add_script(machine, READS_SECRETS, secrets=["HF_TOKEN", "DELETED"])

    async def scenario() -> None:
        async with machine.worker():
            await machine.until(script, "completed", "failed")
            await machine.until(without, "completed", "failed")

    asyncio.run(scenario())
    assert machine.job(script).status == "completed", machine.job(script).error_message
    output = (machine.run_dir(script) / "logs" / "output.log").read_text()
    assert hashlib.sha256(b"the-projects-value").hexdigest() in output
    assert "False" in output
    kept = [path for path in machine.run_dir(script).rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if b"the-projects-value" in path.read_bytes()]
    gone = machine.job(without)
    assert (gone.status, gone.error_code) == ("failed", "secret_missing")
    assert "DELETED" in (gone.error_message or "")
