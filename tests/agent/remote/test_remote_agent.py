"""Jobs on another machine, which has one presigned address and nothing else."""

import hashlib
import json
import shutil
import signal
import time
import zipfile
from pathlib import Path

import pytest

from gpubloom.agent import AgentFiles
from gpubloom.traincard import load_latest, read_all
from gpubloom.traincard.control import ControlFile
from gpubloom.traincard.sync.accepted import SCRIPT_PATHS
from tests.agent.remote.conftest import Instances
from tests.agent.runs import wait_until
from tests.storage.instances import content
from tests.traincard_mirror.conftest import SECRET, S3Server
from tests.worker.toy_training import TOY

pytest.importorskip("obstore")
pytestmark = pytest.mark.xdist_group("s3")

PLAIN = """\
import os, time
print("plain script begins", dict(os.environ))
os.makedirs("out", exist_ok=True)
for step in range(1, {steps} + 1):
    print(f"iter {{step}}: loss {{1 / step:.4f}}", flush=True)
    if step % 10 == 0:
        with open("out/ckpt.pt", "wb") as file:
            file.write(bytes([step]) * 2_500_000)
    time.sleep(0.05)
"""
GOES_ON = """\
while not os.path.exists("enough"):
    print("waiting", flush=True)
    time.sleep(0.05)
os.remove("enough")
"""


def toy(**config: object) -> dict[str, str]:
    return {"train.py": TOY, "toy.json": json.dumps(config)}


@pytest.mark.long
def test_a_remote_training_is_followed_while_it_runs_and_is_the_same_at_the_end(
    instance: Instances, bucket: S3Server
) -> None:
    one = instance(toy(steps=12, hold_at=7))
    one.start()

    def step() -> int:
        one.receiver.once()
        return int((load_latest(one.run_dir) or {}).get("step") or 0)

    wait_until(lambda: step() == 7, "progress while it runs")
    assert one.receiver.once().state == "running"
    (one.there / ".go").touch()
    ended = one.until("ended")
    assert ended.exit is not None
    assert (ended.exit.code, ended.exit.reason, ended.differences) == (0, "ended", ())
    assert one.code() == 0
    assert content(one.run_dir) == content(one.there)
    assert "model/config.json" in content(one.run_dir)
    assert one.store.sizes("jobs/job-1/a0001/in") == {}
    # The secret is nowhere, and addresses are in nothing that is read, shown or mirrored.
    paths = [path for root in (one.folder, bucket.folder) for path in root.rglob("*") if path.is_file()]
    assert len(paths) > 10
    assert not [path for path in [*paths, one.output] if SECRET.encode() in path.read_bytes()]
    shown = [one.output, *(path for path in one.there.rglob("*") if path.is_file())]
    assert not [path for path in shown if b"X-Amz-Signature" in path.read_bytes()]


@pytest.mark.long
def test_a_script_that_knows_nothing_of_us_outlives_its_addresses_and_its_files_arrive_in_parts(
    instance: Instances,
) -> None:
    one = instance(
        {"work/train.py": PLAIN.format(steps=60) + GOES_ON},
        accepted=SCRIPT_PATHS,
        slots=12,
        slot_life_seconds=2,
    )
    one.start(timing={"part_bytes": 1 << 20}, folder="work")
    one.until("running")
    began = time.monotonic()
    wait_until(
        lambda: one.receiver.once().applied > 12 and time.monotonic() - began > 2,
        "more deliveries than there were addresses, and all of those too old",
    )
    (one.there / "work/enough").touch()
    ended = one.until("ended")
    assert ended.exit is not None
    assert (ended.exit.code, ended.differences) == (0, ())
    assert ended.applied > 12
    assert content(one.run_dir) == content(one.there)
    assert (one.run_dir / "work/out/ckpt.pt").read_bytes() == bytes([60]) * 2_500_000
    printed = (one.run_dir / "logs/output.log").read_text()
    assert "BLOOM_RUN_DIR" in printed
    assert not [word for word in (SECRET, "X-Amz", "BLOOM_START") if word in printed]


def test_cancelling_reaches_a_script_that_never_looks(instance: Instances) -> None:
    one = instance({"train.py": PLAIN.format(steps=10_000)})
    one.start()
    wait_until(
        lambda: one.receiver.once().applied > 0 and (one.run_dir / "logs/output.log").exists(), "output"
    )
    ControlFile(one.run_dir).want("cancel")
    ended = one.until("ended")
    assert ended.exit is not None
    assert ended.exit.reason == "stopped"


@pytest.mark.long
def test_cancelling_lets_a_training_that_looks_end_by_itself(instance: Instances) -> None:
    one = instance(toy(steps=5, hold_at=3))
    one.start()
    wait_until(lambda: bool(one.receiver.once().applied and load_latest(one.run_dir)), "a report")
    ControlFile(one.run_dir).want("cancel")
    ended = one.until("ended")
    assert ended.exit is not None
    assert (ended.exit.code, ended.exit.reason) == (0, "ended")
    assert (load_latest(one.run_dir) or {})["status"] == "cancelled"


@pytest.mark.long
def test_a_killed_agent_is_missed_and_goes_on_when_it_is_started_again(instance: Instances) -> None:
    one = instance(toy(steps=12, hold_at=7))
    one.start()
    one.until("running")
    one.kill()
    gone = one.until("silent")
    assert gone.exit is None
    (one.there / ".go").touch()
    one.again()
    ended = one.until("ended")
    assert ended.exit is not None
    assert (ended.exit.code, ended.differences) == (0, ())
    assert content(one.run_dir) == content(one.there)


@pytest.mark.long
def test_a_training_whose_own_agent_is_killed_ends_and_has_vanished(instance: Instances) -> None:
    one = instance({"train.py": PLAIN.format(steps=10_000)})
    one.start()
    one.until("running")
    wait_until(lambda: AgentFiles(one.there).agent.exists(), "the agent's record")
    record = AgentFiles(one.there).read_agent()
    assert record is not None
    record.agent.signal(signal.SIGKILL)
    assert one.until("vanished").exit is None
    assert one.code() == 0
    assert not record.training.lives


@pytest.mark.long
def test_a_machine_that_is_about_to_go_stops_the_training_and_delivers(instance: Instances) -> None:
    one = instance({"train.py": PLAIN.format(steps=10_000)})
    one.start()
    one.until("running")
    one.terminate()
    ended = one.until("ended")
    assert ended.exit is not None
    assert ended.exit.reason == "stopped"
    one.store.delete_folder("jobs/job-1")
    assert one.store.sizes("jobs/job-1") == {}


@pytest.mark.long
def test_a_paused_run_resumes_on_another_machine_as_one_timeline(instance: Instances) -> None:
    one = instance(toy(steps=12, hold_at=7))
    one.start()
    wait_until(lambda: bool(one.receiver.once().applied and load_latest(one.run_dir)), "a report")
    ControlFile(one.run_dir).want("pause")
    one.until("ended")
    assert one.code() == 0
    shutil.rmtree(one.folder)
    ControlFile(one.run_dir).want("run")
    two = instance(toy(steps=12), attempt=2)
    two.start()
    ended = two.until("ended")
    assert ended.exit is not None
    assert (ended.exit.code, ended.differences) == (0, ())
    assert content(two.run_dir) == content(two.there)
    steps = [event.step for event in read_all(two.run_dir) if event.kind == "metric"]
    assert steps == list(range(1, 13))
    assert json.loads((two.run_dir / "model/config.json").read_text()) == {"sum": 78}


@pytest.mark.long
def test_the_time_limit_holds_without_anybody_watching_and_the_wheel_is_there(
    instance: Instances, tmp_path: Path
) -> None:
    wheel = tmp_path / "brought-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("brought.py", "STEPS = 10_000")
    one = instance({"train.py": "from brought import STEPS\n" + PLAIN.format(steps=10_000)})
    one.start(wheel=wheel, time_limit_seconds=1.0)
    assert one.code() == 0
    ended = one.until("ended")
    assert ended.exit is not None
    assert ended.exit.reason == "time_limit"


@pytest.mark.long
def test_a_program_of_the_job_can_be_executed_there(instance: Instances) -> None:
    one = instance(
        {"go.sh": "#!/bin/sh\necho executed\n", "train.py": "import os; os.execv('./go.sh', ['go'])"}
    )
    (one.run_dir / "go.sh").chmod(0o755)
    one.start()
    one.until("ended")
    assert "executed" in (one.run_dir / "logs/output.log").read_text()


@pytest.mark.long
def test_a_bundle_that_was_changed_in_the_bucket_is_not_run(instance: Instances, bucket: S3Server) -> None:
    one = instance({"train.py": "open('ran', 'w')"})
    sent = one.send()
    stored = hashlib.sha256(b"open('ran', 'w')").hexdigest()
    (changed,) = bucket.folder.rglob(stored)
    changed.write_bytes(b"open('ran', 'a')")
    one.launch(sent)
    assert one.code() == 78
    assert "train.py is damaged" in one.output.read_text()
    assert not list(one.folder.rglob("ran"))
