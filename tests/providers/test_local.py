"""The local provider: starts once, tells the truth, stops what it means to stop."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gpubloom.agent import AgentFiles, JobSpec
from gpubloom.agent.file_lock import hold
from gpubloom.agent.processes import Process
from gpubloom.providers import AgentStatus, LocalProvider, ProviderError
from tests.agent.runs import TIMEOUT_SECONDS, Run, wait_until
from tests.deletion import delete_in_use
from tests.errors import raises

NewRun = Callable[[str], Run]
WAITS = "print('on'); import time; time.sleep(60)"


def submit(provider: LocalProvider, spec: JobSpec, gpus: int = 0) -> None:
    reservation = provider.reserve(gpus)
    assert reservation is not None
    with reservation:
        asyncio.run(provider.submit(spec, reservation))


def status(provider: LocalProvider, run: Run, attempt: int = 1) -> AgentStatus:
    return asyncio.run(provider.status(run.path, attempt))


def stop(provider: LocalProvider, run: Run, *, force: bool) -> None:
    asyncio.run(provider.stop(run.path, force=force))


def test_a_job_runs_to_its_end_and_leaves_no_process_behind(provider: LocalProvider, new_run: NewRun) -> None:
    run = new_run(
        "print('on'); import os, time\nwhile not os.path.exists('end'): time.sleep(0.01)\nraise SystemExit(7)"
    )
    assert status(provider, run) == AgentStatus(alive=False, agent_alive=False, attempt=0, exit=None)
    submit(provider, run.spec)
    assert status(provider, run) == AgentStatus(alive=True, agent_alive=True, attempt=1, exit=None)
    # The reservation was released here and is held there.
    assert provider.reserve(0) is None
    (run.path / "end").touch()
    run.wait_until_free()
    found = status(provider, run)
    assert found.exit is not None
    assert (found.alive, found.agent_alive, found.exit.code) == (False, False, 7)
    # A killed agent would be seen as its parent's zombie if the provider were its parent. Asked for by their
    # numbers: other tests may have left this process children of their own, such as a database.
    record = AgentFiles(run.path).read_agent()
    assert record is not None
    for pid in (record.agent.pid, record.training.pid):
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    free = provider.reserve(0)
    assert free is not None
    free.release()


@pytest.mark.long
def test_submitting_again_starts_nothing(provider: LocalProvider, new_run: NewRun) -> None:
    run = new_run("open('runs', 'a').write('x'); " + WAITS)
    submit(provider, run.spec)
    run.wait_for_output("on")
    first = run.agent
    with provider.reserve(1) as spare:  # type: ignore[union-attr]
        asyncio.run(provider.submit(run.spec, spare))
        with raises(ProviderError, code="attempt_out_of_order", match="Attempt 1"):
            asyncio.run(provider.submit(run.attempt(2), spare))
        assert run.agent == first
        stop(provider, run, force=True)
        asyncio.run(provider.submit(run.spec, spare))
    assert not status(provider, run).alive
    assert (run.path / "runs").read_text() == "x"


def test_an_older_attempt_comes_too_late(provider: LocalProvider, new_run: NewRun) -> None:
    run = new_run("")
    submit(provider, run.attempt(2))
    with raises(ProviderError, code="attempt_out_of_order", match="Attempt 2"):
        submit(provider, run.attempt(1), gpus=1)


def test_stop_lets_the_training_save(provider: LocalProvider, new_run: NewRun) -> None:
    run = new_run(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('saved'), sys.exit(0)))\n"
        "print('on'); time.sleep(60)"
    )
    submit(provider, run.spec)
    run.wait_for_output("on\n")
    stop(provider, run, force=False)
    run.wait_until_free()
    found = status(provider, run).exit
    assert found is not None
    assert (found.code, found.reason) == (0, "stopped")
    assert "saved" in run.output()
    # Nothing is there any more, so there is nothing to do.
    stop(provider, run, force=False)
    stop(provider, run, force=True)


def test_force_ends_a_training_that_ignores_everything(provider: LocalProvider, new_run: NewRun) -> None:
    run = new_run("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + WAITS)
    submit(provider, run.spec)
    run.wait_for_output("on\n")
    stop(provider, run, force=False)
    assert status(provider, run).agent_alive
    stop(provider, run, force=True)
    found = status(provider, run)
    assert not found.alive
    assert found.exit is not None
    assert found.exit.signal == signal.SIGKILL


@pytest.mark.long
def test_force_ends_an_agent_that_does_not_answer(provider: LocalProvider, new_run: NewRun) -> None:
    run = new_run(WAITS)
    submit(provider, run.spec)
    run.wait_for_output("on\n")
    os.kill(run.agent.agent.pid, signal.SIGSTOP)
    stop(provider, run, force=True)
    assert status(provider, run) == AgentStatus(alive=False, agent_alive=False, attempt=1, exit=None)


def test_training_that_outlives_its_agent_is_seen_and_can_be_ended(
    provider: LocalProvider, new_run: NewRun
) -> None:
    run = new_run(WAITS)
    submit(provider, run.spec, gpus=2)
    run.wait_for_output("on\n")
    os.kill(run.agent.agent.pid, signal.SIGKILL)
    wait_until(lambda: not run.agent.agent.lives, "the agent to be gone")
    assert status(provider, run) == AgentStatus(alive=True, agent_alive=False, attempt=1, exit=None)
    assert provider.reserve(1) is None
    stop(provider, run, force=True)
    assert not status(provider, run).alive
    submit(provider, run.attempt(2), gpus=2)


def test_an_orphaned_training_is_asked_directly(provider: LocalProvider, new_run: NewRun) -> None:
    run = new_run(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (open('saved', 'w'), sys.exit(0)))\n"
        "print('on'); time.sleep(60)"
    )
    submit(provider, run.spec)
    run.wait_for_output("on\n")
    os.kill(run.agent.agent.pid, signal.SIGKILL)
    wait_until(lambda: not run.agent.agent.lives, "the agent to be gone")
    stop(provider, run, force=False)
    run.wait_until_free()
    assert (run.path / "saved").exists()


def test_a_process_with_a_used_number_is_never_signalled(
    provider: LocalProvider, new_run: NewRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpubloom.providers.local.provider._GONE_SECONDS", 0.1)
    run = new_run("")
    submit(provider, run.spec)
    run.wait_until_free()
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as stranger:
        # The numbers of the run now belong to a stranger, and something else holds the lock.
        other = Process(stranger.pid, Process.find(stranger.pid).start_ticks - 1)
        run.files.write_agent(replace(run.agent, agent=other, training=other))
        lock = hold(run.files.lock)
        assert lock is not None
        found = status(provider, run)
        assert (found.alive, found.agent_alive) == (True, False)
        stop(provider, run, force=False)
        assert stranger.poll() is None
        with raises(ProviderError, code="run_in_use"):
            stop(provider, run, force=True)
        os.close(lock)
        assert stranger.poll() is None
        stranger.kill()


STARTER = """
import asyncio, sys
from pathlib import Path
from gpubloom.agent import JobSpec
from gpubloom.providers import LocalProvider

async def main(home, run):
    provider = LocalProvider(home, warm_modules=["json"], warm=sys.argv[3] == "warm")
    await provider.open()
    reservation = provider.reserve(0)
    await provider.submit(JobSpec("job", run, 1, (sys.executable, "train.py")), reservation)
    print(provider._warm.pid if provider._warm else 0, flush=True)
    await asyncio.sleep(60)

asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
"""


@pytest.mark.parametrize("how", ["warm", "plain"])
def test_a_run_survives_whoever_started_it(
    provider: LocalProvider, new_run: NewRun, home: Path, how: str
) -> None:
    run = new_run(
        "print('on'); import os, time\nwhile not os.path.exists('end'): time.sleep(0.01)\nprint('done')"
    )
    command = [sys.executable, "-c", STARTER, str(home), str(run.path), how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as starter:
        assert starter.stdout is not None
        parent = int(starter.stdout.readline())
        run.wait_for_output("on\n")
        assert f"({how} start" in run.output()
        if parent:
            os.kill(parent, signal.SIGKILL)
        os.killpg(starter.pid, signal.SIGKILL)
        starter.wait(TIMEOUT_SECONDS)
    assert status(provider, run).agent_alive
    assert provider.reserve(0) is None
    (run.path / "end").touch()
    run.wait_until_free()
    found = status(provider, run).exit
    assert found is not None
    assert found.code == 0
    assert "done" in run.output()
    free = provider.reserve(0)
    assert free is not None
    free.release()


def test_a_deleted_run_directory_is_not_alive_and_frees_its_devices(
    provider: LocalProvider, new_run: NewRun
) -> None:
    run = new_run(WAITS)
    submit(provider, run.spec)
    run.wait_for_output("on\n")
    delete_in_use(run.path)
    assert status(provider, run) == AgentStatus(alive=False, agent_alive=False, attempt=0, exit=None)
    with raises(ProviderError, code="directory_gone"), provider.reserve(1) as other:  # type: ignore[union-attr]
        asyncio.run(provider.submit(run.attempt(2), other))

    def is_free() -> bool:
        if (found := provider.reserve(0)) is None:
            return False
        found.release()
        return True

    wait_until(is_free, "the CPU slot to be free again")
    assert not run.path.exists()


def test_secrets_of_the_worker_reach_neither_the_training_nor_its_agent(
    provider: LocalProvider, new_run: NewRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BLOOM_DATABASE_URL", "postgresql://bloom:hunter2@db/bloom")
    run = new_run(
        "import json, os\n"
        "own = open('/proc/self/environ').read()\n"
        "agent = open(f'/proc/{os.getppid()}/environ').read()\n"
        "json.dump([dict(os.environ), own, agent], open('seen.json', 'w'))\n"
    )
    submit(provider, run.spec, gpus=2)
    run.wait_until_free()
    assert "hunter2" not in json.dumps(run.said("seen.json"))
    seen = run.said("seen.json")
    assert isinstance(seen, list)
    assert seen[0]["CUDA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"


def test_a_damaged_exit_record_says_nothing(provider: LocalProvider, new_run: NewRun) -> None:
    run = new_run("")
    submit(provider, run.spec)
    run.wait_until_free()
    run.files.exit(1).write_text("{")
    assert status(provider, run).exit is None
