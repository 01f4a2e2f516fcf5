"""The sandbox for people's own scripts: what is tried from inside, on the real system."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import uuid4

import pytest

from gpubloom.agent.spec import JobSpec
from gpubloom.providers.local.sandbox import Sandbox, why_no_sandbox
from gpubloom.sandbox.launch import COMMAND
from gpubloom.sandbox.options import Limits, Options
from tests.agent.runs import Run, wait_until

REASON = why_no_sandbox()
pytestmark = [
    pytest.mark.skipif(REASON is not None, reason=f"no sandbox here: {REASON}"),
    pytest.mark.xdist_group("sandbox"),
]

SMALL = Limits(
    memory_bytes=400 << 20,
    process_bytes=400 << 20,
    processes=60,
    file_bytes=20 << 20,
    least_free_bytes=1 << 20,
)


@dataclass
class Inside:
    """A home of a server with two jobs in it; scripts run in the sandbox of the first."""

    server: Path
    bubblewrap: bool = True
    limits: Limits = SMALL
    network: bool = False
    gpus: tuple[str, ...] = ()
    hidden: Path | None = None
    # Instead of the sandbox of a script.
    made: Options | None = None
    environment: dict[str, str] = field(default_factory=dict)
    # By this name its processes are found among all others.
    script: str = field(default_factory=lambda: f"script_{uuid4().hex}.py")

    @property
    def run_dir(self) -> Path:
        return self.server / "runs" / "mine"

    @property
    def work(self) -> Path:
        return self.run_dir / "work"

    @property
    def options(self) -> Options:
        if self.made is not None:
            return self.made
        hidden = self.hidden or self.server
        sandbox = Sandbox(self.run_dir, hidden, "me", self.limits, network=self.network, gpus=self.gpus)
        options = sandbox.of_a_script(self.work, self.run_dir / "home", self.environment)
        return options if self.bubblewrap else replace(options, bubblewrap=None)

    def spec(self, script: str) -> JobSpec:
        confinement = self.options.to_json()
        (self.work / self.script).write_text(script)
        command = (sys.executable, "-S", self.script)
        return JobSpec(
            "job-1", self.run_dir, 1, command, folder="work", confinement=confinement, launcher=COMMAND
        )

    def command(self, script: str) -> tuple[str, ...]:
        """What the agent would run."""
        (self.run_dir / "agent").mkdir(parents=True, exist_ok=True)
        (self.run_dir / "agent" / "job.json").write_text(self.spec(script).to_json())
        return COMMAND

    @property
    def outside(self) -> dict[str, str]:
        return {**SERVER, "BLOOM_RUN_DIR": str(self.run_dir)}

    def processes(self) -> int:
        """How many processes of the script live."""
        found = 0
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                found += self.script.encode() in path.read_bytes()
        return found

    def run(self, script: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.command(script), capture_output=True, text=True, check=False, timeout=60, env=self.outside
        )

    def say(self, expression: str) -> object:
        """What an expression is inside; as JSON."""
        done = self.run(f"import json, os, socket\nprint(json.dumps({expression}))")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


SERVER = {"PATH": os.environ["PATH"], "BLOOM_SECRET": "of the server", "DATABASE_URL": "postgresql://a:b@c/d"}


@pytest.fixture(params=["bubblewrap", "fork"])
def inside(tmp_path: Path, request: pytest.FixtureRequest) -> Inside:
    """Both ways to set up a sandbox pass the same tests."""
    server = tmp_path / "bloom"
    (server / "runs" / "theirs").mkdir(parents=True)
    (server / "runs" / "theirs" / "model.pt").write_text("theirs")
    (server / "secret.key").write_text("key")
    (server / "bloom.db").write_text("rows")
    return Inside(server, bubblewrap=request.param == "bubblewrap")


def attempt(inside: Inside, *what: str) -> list[str]:
    """What becomes of things that must not work: what they print, or the error that the script gets."""
    tried = "".join(
        f"try:\n    {each}\nexcept OSError as problem:\n    print(type(problem).__name__)\n" for each in what
    )
    done = inside.run(f"import os, socket\n{tried}")
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_files_of_the_server_and_of_others_are_not_there(inside: Inside) -> None:
    server = inside.server
    paths = [str(server / path) for path in ("secret.key", "bloom.db", "runs/theirs/model.pt")]
    # A link out of the work folder leads nowhere.
    inside.work.mkdir(parents=True)
    (inside.work / "link").symlink_to(server / "secret.key")
    tried = attempt(inside, *(f"print(open({path!r}).read())" for path in [*paths, "link"]))
    assert tried == ["FileNotFoundError"] * 4
    assert inside.say(f"[os.path.exists({str(server)!r}), sorted(os.listdir('/job'))]") == [
        False,
        ["home", "work"],
    ]
    outside = ("/etc/shadow", "/home", "/var", "/run", "/mnt")
    assert inside.say(f"[os.path.exists(path) for path in {outside}]") == [False] * 5


def test_a_server_home_inside_of_the_python_environment_is_covered(inside: Inside) -> None:
    shown = Path(sys.prefix, f"bloom-test-{os.getpid()}")
    shown.mkdir()
    try:
        (shown / "secret.key").write_text("key")
        inside.hidden = shown
        assert inside.say(f"os.listdir({str(shown)!r})") == []
    finally:
        (shown / "secret.key").unlink()
        shown.rmdir()


@pytest.mark.parametrize("prefix", ["", ".local"])
def test_a_python_in_the_home_of_a_person_shows_no_other_files_of_it(
    inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    home = tmp_path / "person"
    python = home / prefix / "bin" / "python"
    secret = home / prefix / "share" / "keyrings" / "login"
    for path in (python, secret):
        path.parent.mkdir(parents=True)
    python.symlink_to(Path(sys.executable).resolve())
    secret.write_text("secret")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(sys, "executable", str(python))
    shown = f"[os.listdir({str(home / prefix)!r}), os.path.exists({str(python)!r})]"
    assert inside.say(shown) == [["bin"], True]


def test_a_server_home_inside_of_a_folder_of_data_is_covered_but_for_inputs(inside: Inside) -> None:
    server = inside.server
    (server.parent / "corpus.txt").write_text("data")
    (server / "datasets").mkdir()
    (server / "datasets" / "mine.jsonl").write_text("mine")
    inside.work.mkdir(parents=True)
    sandbox = Sandbox(inside.run_dir, server, "me", SMALL)
    options = sandbox.of_a_training(
        [server.parent, server / "datasets" / "mine.jsonl"],
        server / "cache",
        noun="training",
        python=sys.executable,
    )
    options = replace(options, folder=str(inside.work))
    inside.made = options if inside.bubblewrap else replace(options, bubblewrap=None)
    found = f"sorted(os.path.relpath(os.path.join(top, name), {str(server.parent)!r})"
    found += (
        f" for top, _, names in os.walk({str(server.parent)!r}) for name in names if '/mine/' not in top)"
    )
    assert inside.say(found) == ["bloom/datasets/mine.jsonl", "corpus.txt"]
    assert inside.say(f"os.listdir({str(server / 'runs')!r})") == ["mine"]


def test_nothing_can_be_written_but_work_home_and_temporary_files(inside: Inside) -> None:
    python = Path(sys.prefix, "written").as_posix()
    paths = ["/written", "/job/written", "/usr/written", "/etc/passwd", "/dev/written", python]
    # A kernel setting that would run a program of the script's outside.
    paths.append("/proc/sys/kernel/core_pattern")
    tried = attempt(inside, *(f"open({path!r}, 'w')" for path in paths))
    assert len(tried) == len(paths)
    assert set(tried) <= {"OSError", "PermissionError"}
    mark = f"/tmp/written-{os.getpid()}"
    allowed = ("a.txt", "/job/home/b", mark, "/dev/shm/d")
    assert (
        attempt(inside, *(f"open({path!r}, 'w').write('x') and print('ok')" for path in allowed))
        == ["ok"] * 4
    )
    assert (inside.work / "a.txt").read_text() == "x"
    assert not Path(mark).exists()


def test_the_environment_is_a_clean_one(inside: Inside) -> None:
    inside.environment["WANDB_MODE"] = "offline"
    names = inside.say("dict(os.environ)")
    assert isinstance(names, dict)
    assert names["WANDB_MODE"] == "offline"
    assert names["HOME"] == "/job/home"
    allowed = {
        "PATH",
        "HOME",
        "USER",
        "LANG",
        "TMPDIR",
        "PYTHONUNBUFFERED",
        "MPLBACKEND",
        "PWD",
        "WANDB_MODE",
    }
    assert set(names) <= allowed | {"LC_CTYPE"}


def test_variables_of_a_script_act_inside_only(inside: Inside) -> None:
    inside.environment["LD_PRELOAD"] = "nowhere.so"
    done = inside.run("print('hello')")
    assert done.stdout == "hello\n"
    # The loader complains once: of the script itself, not of what sets up the sandbox.
    assert done.stderr.count("nowhere.so") == 1


def test_other_processes_cannot_be_seen_signalled_or_read(inside: Inside) -> None:
    seen = inside.say("[name for name in os.listdir('/proc') if name.isdecimal()]")
    assert seen == ["1", "2"]
    assert attempt(inside, f"os.kill({os.getpid()}, 0)") == ["ProcessLookupError"]
    # The only other process is bubblewrap's own; it says nothing of the server either.
    told = inside.say("open('/proc/1/cmdline').read()")
    assert str(inside.server) not in str(told)
    tried = attempt(inside, "print(open('/proc/1/environ').read() or 'nothing')")
    assert tried in (["nothing"], ["PermissionError"])


def test_it_has_no_rights_and_no_open_files_of_the_agent(inside: Inside) -> None:
    assert inside.say("[os.getuid() != 0, os.getgroups()]") == [True, []]
    rights = inside.say(
        "[line.split()[1] for line in open('/proc/self/status') if line[:6] in ('CapPrm', 'CapEff')]"
    )
    assert rights == ["0000000000000000"] * 2
    read, write = os.pipe()
    os.set_inheritable(write, True)
    command = inside.command("import os; print(sorted(os.listdir('/proc/self/fd')))")
    said = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60, close_fds=False, env=inside.outside
    )
    os.close(read)
    os.close(write)
    # The fourth is the listing itself.
    assert said.stdout.strip() == "['0', '1', '2', '3']"


def test_there_is_no_network_unless_it_is_allowed(inside: Inside) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ask = (
            f"print(socket.create_connection(('127.0.0.1', {listening.getsockname()[1]}), 5) and 'connected')"
        )
        outside = "socket.create_connection(('192.0.2.1', 80), 5)"
        assert attempt(inside, ask, outside) == ["ConnectionRefusedError", "OSError"]
        inside.network = True
        assert attempt(inside, ask) == ["connected"]


def test_a_job_with_gpus_sees_its_own_and_a_system_it_cannot_change(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A fake for a GPU's node: a device that is not shown otherwise.
    node = next(
        (name for name in ("kmsg", "fuse", "mem", "rtc0", "hwrng") if Path("/dev", name).exists()), None
    )
    if node is None:
        pytest.skip("this machine has no device that could stand in for a GPU")
    assert inside.say(f"os.path.exists('/dev/{node}')") is False
    monkeypatch.setattr("gpubloom.providers.local.sandbox.gpu_nodes", lambda gpus: (node,))
    inside.gpus = ("GPU-1",)
    command = inside.command(
        "import json, os\n"
        f"seen = [os.environ['CUDA_VISIBLE_DEVICES'], os.path.exists('/dev/{node}')]\n"
        "print(json.dumps([*seen, os.access('/sys/kernel', os.W_OK)]))"
    )
    environment = {**inside.outside, "CUDA_VISIBLE_DEVICES": "GPU-1"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=environment)
    assert json.loads(done.stdout) == ["GPU-1", True, False]


def test_a_fork_bomb_is_ended_and_nothing_of_it_stays(inside: Inside) -> None:
    done = inside.run(
        "import os\nos.write(1, b'go')\nwhile True:\n    try: os.fork()\n    except OSError: pass\n"
    )
    assert done.returncode == 1
    assert "processes and threads (limit 60)" in done.stderr
    wait_until(lambda: inside.processes() == 0, "the end of all its processes")


def test_what_its_user_runs_outside_the_sandbox_is_not_counted_against_it(inside: Inside) -> None:
    many = (
        "import threading, time\nwait = threading.Event().wait\n"
        "for _ in range(150): threading.Thread(target=wait, args=(60,), daemon=True).start()\n"
        "print('there', flush=True); time.sleep(60)\n"
    )
    user = 65_534 if os.geteuid() == 0 else None
    with subprocess.Popen(["python3", "-c", many], stdout=subprocess.PIPE, user=user) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == b"there\n"
            done = inside.run("import os\nif os.fork(): os.wait(); print('two processes')\n")
            assert done.stdout == "two processes\n", done.stderr
        finally:
            other.kill()


def test_memory_is_limited_for_one_process_and_for_all_together(inside: Inside) -> None:
    fill = "kept = []\nfor _ in range(100): kept.append(bytearray(10 << 20))\n"
    alone = inside.run(fill)
    assert alone.returncode == 1
    assert "MemoryError" in alone.stderr
    several = inside.run(
        "import os, time\nfor _ in range(4):\n    if os.fork() == 0:\n"
        "        kept = bytearray(150 << 20); time.sleep(30)\ntime.sleep(30)"
    )
    assert several.returncode == 1
    assert "(limit 0.4 GB)" in several.stderr


def test_one_file_and_temporary_files_have_a_largest_size(inside: Inside) -> None:
    grow = (
        "with open({!r}, 'wb') as file:\n    for _ in range(40): file.write(bytes(10 << 20)); file.flush()\n"
    )
    done = inside.run(grow.format("large.bin"))
    assert "File too large" in done.stderr
    assert (inside.work / "large.bin").stat().st_size <= SMALL.file_bytes
    inside.limits = replace(SMALL, file_bytes=1 << 30)
    assert "No space left" in inside.run(grow.format("/tmp/large.bin")).stderr


def test_time_on_the_processor_is_limited(inside: Inside) -> None:
    inside.limits = replace(SMALL, cpu_seconds=1)
    assert inside.run("while True: pass").returncode in {-signal.SIGXCPU, -signal.SIGKILL}


def test_a_nearly_full_disk_ends_it(inside: Inside) -> None:
    inside.limits = replace(SMALL, least_free_bytes=1 << 60)
    done = inside.run("import time; time.sleep(30)")
    assert (done.returncode, "are left on the disk" in done.stderr) == (1, True)


@pytest.mark.parametrize(("ending", "code"), [("raise SystemExit(7)", 7), ("os.kill(os.getpid(), 9)", -9)])
def test_it_ends_as_the_script_ended(inside: Inside, ending: str, code: int) -> None:
    assert inside.run(f"import os\n{ending}").returncode == code


@pytest.mark.parametrize("way", ["bubblewrap", "fork"])
def test_an_agent_stops_a_sandboxed_script_gently_and_its_death_takes_everything_along(
    tmp_path: Path, way: str
) -> None:
    inside = Inside(tmp_path / "bloom", bubblewrap=way == "bubblewrap")
    run = Run(inside.run_dir)
    script = (
        "import signal, sys, time\n"
        "def stop(*_): open('saved', 'w').write('yes'); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, stop)\n"
        "print('ready')\n"
        "while True: time.sleep(0.1)\n"
    )
    run.spec = replace(inside.spec(script), stop_grace_seconds=20)
    with run.start_agent() as agent:
        run.wait_for_output("ready")
        agent.terminate()
        assert agent.wait(120) == 0
    assert (run.exit().code, run.exit().reason) == (0, "stopped")
    assert (inside.work / "saved").read_text() == "yes"

    run.spec = replace(run.spec, attempt=2)
    with run.start_agent() as agent:
        wait_until(lambda: run.output().count("ready") == 2, "the second attempt")
        os.killpg(run.agent.group, signal.SIGKILL)
        assert agent.wait(120) == 0
    assert run.exit(2).signal == signal.SIGKILL
    wait_until(lambda: inside.processes() == 0, "the end of everything inside")


def test_the_reason_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    # A server needs no bubblewrap where it can set up the namespaces by itself.
    assert why_no_sandbox() is None
    refusing = tmp_path / "bwrap"
    refusing.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    refusing.chmod(0o755)
    reason = why_no_sandbox() or ""
    assert "No permissions to create new namespace" in reason
    assert "Allow user namespaces" in reason
