"""The process of a training: how its threads wait, and what it refuses."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpubloom.cli.child_process import (
    ENGINE,
    TRANSFORMERS,
    Child,
    EarlyStart,
    modules_for,
    stopping_signals,
    thread_waiting,
)
from tests.waiting import wait_until


@pytest.mark.parametrize("chosen", [{"OMP_WAIT_POLICY": "ACTIVE"}, {"GOMP_SPINCOUNT": "5"}])
def test_threads_spin_briefly_unless_somebody_chose_otherwise(chosen: dict[str, str]) -> None:
    assert set(thread_waiting({"PATH": "/bin"})) == {"GOMP_SPINCOUNT"}
    assert thread_waiting(chosen) == {}


def test_a_refusal_is_found_before_lines_of_another_process(tmp_path: Path) -> None:
    script = tmp_path / "refuse.py"
    script.write_text("print('error[run_in_use]: Another process trains here.')\nraise SystemExit(2)\n")
    child = Child([str(script)], tmp_path / "output.log", sys.executable)
    assert child.wait() == 2
    with (tmp_path / "output.log").open("a") as log:
        log.write("step 76/5,180  loss 3.9168\n")
    assert child.refusal().code == "run_in_use"


def test_an_early_start_becomes_the_script_as_python_would_run_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, log = tmp_path / "script.py", tmp_path / "logs" / "output.log"
    script.write_text(
        "import json, os, sys\n"
        "names = [__name__, __file__, sys.argv, sys.orig_argv[1:]]\n"
        "print(json.dumps([os.getpid(), *names, sys.path[0], sys.stdin.read()]))\n"
        "print('said', file=sys.stderr)\n"
        "raise SystemExit(3)\n"
    )
    # Not in the path of a script that is started here.
    (tmp_path / "sched.py").write_text("print('shadowed')")
    monkeypatch.chdir(tmp_path)
    with EarlyStart("sched") as early:
        child = Child([str(script), "--resume"], log, early=early)
        assert child.wait() == 3
    told, said = log.read_text().splitlines()
    arguments = [str(script), "--resume"]
    assert json.loads(told) == [
        early.pid,
        "__main__",
        str(script),
        arguments,
        arguments,
        str(tmp_path),
        "",
    ]
    assert said == "said"


def test_an_early_start_imports_what_it_can_until_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text("raise RuntimeError('printed nowhere')\n")
    for name in ("wanted", "beside"):
        (tmp_path / f"{name}.py").write_text("print('a warning')\nopen(__name__, 'w').close()\n")
    script = tmp_path / "script.py"
    script.write_text("import sys\nprint({'wanted', 'beside'} <= {*sys.modules})\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    with EarlyStart("broken,wanted", "broken,beside") as early:
        while not (Path("wanted").exists() and Path("beside").exists()):
            assert Path(f"/proc/{early.pid}").exists()
            time.sleep(0.01)
        first = Child(["script.py"], tmp_path / "first.log", early=early)
        second = Child(["script.py"], tmp_path / "second.log", early=early)
        assert (first.wait(), second.wait()) == (0, 0)
    # What modules printed before the log was known is in it.
    assert (tmp_path / "first.log").read_text() == "a warning\na warning\nTrue\n"
    assert (tmp_path / "second.log").read_text() == "False\n"


def test_an_early_start_that_died_is_replaced_by_a_plain_one(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("print('trained')\n")
    with EarlyStart("sched") as early:
        os.kill(early.pid, signal.SIGKILL)
        os.waitid(os.P_PID, early.pid, os.WEXITED | os.WNOWAIT)
        child = Child([str(script)], tmp_path / "output.log", early=early)
        assert child.wait() == 0
    assert child.last_line() == "trained"


def test_an_early_start_that_nothing_came_of_is_gone_with_its_block() -> None:
    with EarlyStart(ENGINE, TRANSFORMERS) as early:
        assert Path(f"/proc/{early.pid}").exists()
    assert not Path(f"/proc/{early.pid}").exists()


def test_an_early_start_ends_when_its_parent_is_killed() -> None:
    code = (
        "import time\nfrom gpubloom.cli.child_process import ENGINE, TRANSFORMERS, EarlyStart\n"
        "with EarlyStart(ENGINE, TRANSFORMERS) as early:\n"
        "    print(early.pid, flush=True)\n    time.sleep(100)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent:
        started = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
    # A descriptor of a process can be read once it has ended.
    ended, _, _ = select.select([started], [], [], 60)
    os.close(started)
    assert ended


@pytest.mark.parametrize(
    ("config", "modules"),
    [
        ('{"model_type": "qwen2"}', (ENGINE,)),
        ('{"model_type": "gemma3_text"}', (ENGINE, TRANSFORMERS)),
        ('{"model_type": ["llama"]}', (ENGINE,)),
        ("[]", (ENGINE,)),
        (None, (ENGINE,)),
    ],
)
def test_transformers_is_imported_early_only_for_models_that_need_it(
    tmp_path: Path, config: str | None, modules: tuple[str, ...]
) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    assert modules_for(tmp_path) == modules


def test_a_second_ctrl_c_while_the_first_is_announced_ends_the_process(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import signal, sys, time\n"
        "def first(number, frame):\n"
        "    signal.signal(signal.SIGINT, lambda number, frame: sys.exit(3))\n"
        "    print('saving')\n"
        "signal.signal(signal.SIGINT, first)\n"
        "print('ready')\n"
        "while True: time.sleep(0.01)\n"
    )
    log = tmp_path / "output.log"
    child = Child([str(script)], log, sys.executable)

    def shown(line: str) -> None:
        while line not in log.read_text():
            assert child.is_alive()
            time.sleep(0.01)

    def announce() -> None:
        shown("saving")
        raise KeyboardInterrupt

    shown("ready")
    child.stop(announce)
    assert child.wait() == 3


def test_only_ctrl_c_ends_a_process_that_saves(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import signal, sys, time\n"
        "from pathlib import Path\n"
        "def first(number, frame):\n"
        "    signal.signal(signal.SIGINT, lambda number, frame: sys.exit(3))\n"
        "    while not Path('announced').exists(): time.sleep(0.01)\n"
        "    sys.exit(4)\n"
        "signal.signal(signal.SIGINT, first)\n"
        "Path('ready').touch()\n"
        "while True: time.sleep(0.01)\n"
    )

    def announce() -> None:
        # A terminal that is closed while the process saves.
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
        (tmp_path / "announced").touch()

    with contextlib.chdir(tmp_path):
        child = Child([str(script)], tmp_path / "output.log", sys.executable)
    wait_until((tmp_path / "ready").exists)
    with stopping_signals():
        child.stop(announce)
    assert child.wait() == 4


def test_a_signal_that_is_ignored_stops_nothing() -> None:
    # As under nohup, so that a training outlives its terminal.
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stopping_signals():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
