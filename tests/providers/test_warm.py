"""Warm starts: like a fresh Python, only sooner; and plain ones with a reason where they cannot be."""

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpubloom.providers import LocalProvider
from gpubloom.providers.local.agent_process import WarmParent
from tests.agent.runs import Run, wait_until
from tests.providers.conftest import machine
from tests.providers.test_local import WAITS, NewRun, status, stop, submit

SHOWS_ITSELF = """
import json, os, random, sys, __main__
facts = dict(
    arguments=sys.argv, command=sys.orig_argv, file=__file__, name=__name__, first_path=sys.path[0],
    folder=os.getcwd(),
    is_main=__main__.__dict__ is globals(), attempt=os.environ["BLOOM_ATTEMPT"],
    modules=sorted(set(sys.modules) & {"json", "sqlite3"}), input=sys.stdin.read(),
    signals=[str(__import__("signal").getsignal(number)) for number in (2, 13, 15, 17)],
    group_is_own=os.getpgrp() == os.getpid(), random=random.random(),
    open=sorted(os.path.basename(os.readlink(f"/proc/self/fd/{n}")) for n in os.listdir("/proc/self/fd")
        if int(n) > 2 and os.path.exists(f"/proc/self/fd/{n}")),
)
json.dump(facts, open("facts.json", "w"))
def fail(): raise ValueError("said by the script")
import atexit; atexit.register(print, "farewell")
print("no newline", end="")
fail()
"""


def like_train_py(run: Run) -> Run:
    run.spec = replace(run.spec, command=(sys.executable, "train.py", "--resume"))
    return run


@pytest.fixture
def warm(home: Path) -> Iterator[LocalProvider]:
    provider = LocalProvider(home, warm_modules=["sqlite3"], devices=machine(home))
    asyncio.run(provider.open())
    yield provider
    asyncio.run(provider.close())


def facts_of(run: Run) -> dict[str, object]:
    found = json.loads((run.path / "facts.json").read_text())
    assert isinstance(found, dict)
    return found


def test_a_script_cannot_tell_a_warm_start_from_a_plain_one(
    warm: LocalProvider, provider: LocalProvider, new_run: NewRun
) -> None:
    seen, outputs = [], []
    for starter in (warm, warm, provider):
        run = like_train_py(new_run(SHOWS_ITSELF))
        submit(starter, run.spec)
        run.wait_until_free()
        assert run.exit().code == 1
        facts = facts_of(run)
        here = str(run.path)
        seen.append({name: str(value).replace(here, "RUN") for name, value in facts.items()})
        outputs.append(
            "\n".join(line for line in run.output().replace(here, "RUN").splitlines() if "[bloom" not in line)
        )
    assert "(warm start)" in (run.path.parent / "job-0" / "logs" / "output.log").read_text()
    assert len({facts.pop("random") for facts in seen}) == 3
    # Imported beforehand; that is the point.
    assert seen[0].pop("modules") == seen[1].pop("modules") == "['json', 'sqlite3']"
    assert seen[2].pop("modules") == "['json']"
    assert seen[0] == seen[1] == seen[2]
    assert seen[0]["open"] == "['cpu.lock', 'lock']"
    assert outputs[0] == outputs[1] == outputs[2]
    assert "said by the script" in outputs[0]
    assert "farewell" in outputs[0]


def test_the_warm_parent_keeps_nothing_of_the_runs_it_started(warm: LocalProvider, new_run: NewRun) -> None:
    run = like_train_py(
        new_run("print('on'); import os, time\nwhile not os.path.exists('end'): time.sleep(0.01)")
    )
    submit(warm, run.spec, gpus=2)
    run.wait_for_output("on\n")
    assert warm.reserve(1) is None
    (run.path / "end").touch()
    run.wait_until_free()
    both = warm.reserve(2)
    assert both is not None
    both.release()


def test_warm_runs_can_be_stopped_and_ended(warm: LocalProvider, new_run: NewRun) -> None:
    polite = like_train_py(
        new_run(
            "import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit(9))\nprint('on'); time.sleep(60)"
        )
    )
    submit(warm, polite.spec)
    polite.wait_for_output("on\n")
    stop(warm, polite, force=False)
    polite.wait_until_free()
    assert (polite.exit().code, polite.exit().reason) == (9, "stopped")
    ignoring = like_train_py(new_run("import signal; signal.signal(15, signal.SIG_IGN); " + WAITS))
    submit(warm, ignoring.spec)
    ignoring.wait_for_output("on\n")
    stop(warm, ignoring, force=True)
    assert not status(warm, ignoring).alive
    assert ignoring.exit().signal == signal.SIGKILL


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda spec: replace(spec, command=(sys.executable, "-S", "train.py")),
            "the command is not train.py or task.py",
        ),
        (
            lambda spec: replace(spec, command=("/usr/bin/env", "train.py")),
            "the command uses another Python",
        ),
        (lambda spec: replace(spec, environment={"OMP_NUM_THREADS": "7"}), "the job sets OMP_NUM_THREADS"),
    ],
)
def test_jobs_that_need_their_own_python_start_plainly_and_say_why(
    warm: LocalProvider,
    new_run: NewRun,
    change: Callable[..., object],
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = like_train_py(new_run(""))
    run.spec = change(run.spec)  # type: ignore[assignment]
    with caplog.at_level(logging.INFO):
        submit(warm, run.spec)
    run.wait_until_free()
    assert f"plain start: {reason}" in run.output()
    assert reason in caplog.text


def test_a_dead_warm_parent_is_replaced_and_no_job_waits_for_it(warm: LocalProvider, new_run: NewRun) -> None:
    parent = warm._warm
    assert parent is not None
    first = like_train_py(new_run(""))
    submit(warm, first.spec)
    first.wait_until_free()
    assert parent.pid is not None
    dead = parent.pid
    os.kill(dead, signal.SIGKILL)
    wait_until(lambda: parent._process is not None and parent._process.poll() is not None, "its death")
    second, third = like_train_py(new_run("")), like_train_py(new_run(""))
    submit(warm, second.spec)
    second.wait_until_free()
    assert "plain start: the warm parent process is gone: it ended with exit code -9" in second.output()
    submit(warm, third.spec)
    third.wait_until_free()
    assert "(warm start)" in third.output()
    assert parent.pid != dead


@pytest.mark.parametrize(
    ("modules", "reason"),
    [
        (["no_such_module"], "no_such_module cannot be imported"),
        (["starts_a_thread"], "a forked process would not have: 1"),
    ],
)
def test_imports_that_fail_or_start_threads_make_every_start_a_plain_one(
    home: Path, new_run: NewRun, modules: list[str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "starts_a_thread.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    )
    paths = [str(home), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    starter = LocalProvider(home, warm_modules=modules, devices=machine(home))
    open_before = os.listdir("/proc/self/fd")
    asyncio.run(starter.open())
    for _ in range(2):
        run = like_train_py(new_run(""))
        submit(starter, run.spec)
        run.wait_until_free()
        assert run.exit().code == 0
        assert reason in run.output()
    asyncio.run(starter.close())
    assert len(os.listdir("/proc/self/fd")) == len(open_before)


def test_the_warm_parent_ends_with_its_worker() -> None:
    parent = WarmParent(["json"])
    parent.start()
    assert parent._channel is not None
    assert parent._process is not None
    parent._channel.close()
    assert parent._process.wait(120) == 0
    parent.close()


@pytest.mark.long
def test_torch_trains_in_a_fork(home: Path, new_run: NewRun) -> None:
    starter = LocalProvider(home, devices=machine(home))
    asyncio.run(starter.open())
    run = like_train_py(
        new_run(
            "import sys; ready = 'torch' in sys.modules\n"
            "import torch\n"
            "layer = torch.nn.Linear(256, 256)\n"
            "layer(torch.ones(512, 256)).sum().backward()\n"
            "import numpy; numpy.ones((300, 300)) @ numpy.ones((300, 300))\n"
            "print('imported beforehand:', ready, 'gradient:', layer.bias.grad.sum().item())\n"
        )
    )
    submit(starter, run.spec)
    run.wait_until_free()
    asyncio.run(starter.close())
    assert run.exit().code == 0, run.output()
    assert "imported beforehand: True gradient: 131072.0" in run.output()
