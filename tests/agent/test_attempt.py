"""An attempt: one agent at a time, once each, and its end on record."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gpubloom.agent import JobSpec
from gpubloom.agent.attempt import ALREADY_RAN, IN_USE, NO_JOB
from gpubloom.agent.file_lock import is_held
from tests.agent.runs import TIMEOUT_SECONDS, Run, wait_until
from tests.errors import raises

NEWER_JOB = JobSpec("job", Path("/run"), 1, ("python",)).to_json().replace('"v": 1', '"v": 99')


def test_exit_code_and_output_are_recorded(run: Run) -> None:
    run.script("import sys; print('to stdout'); print('to stderr', file=sys.stderr); sys.exit(3)")
    end = run.run_agent()
    assert (end.code, end.signal, end.reason) == (3, None, "ended")
    assert end.sentence == "The training process ended with exit code 3."
    assert {"to stdout", "to stderr"} <= set(run.output().splitlines())
    assert time.time() - 60 < end.started_at <= end.ended_at <= time.time()


@pytest.mark.parametrize(
    ("said", "note"),
    [
        ("paused", "The run was paused."),
        ("cancelled", "The run was cancelled."),
        ("completed", "The run completed."),
        ("failed", "The training process ended with exit code 0."),
    ],
)
def test_a_run_that_ended_as_it_was_told_to_is_not_described_by_its_exit_code(
    run: Run, said: str, note: str
) -> None:
    _say(run, json.dumps({"attempt": 1, "status": said}))
    assert run.run_agent().code == 0
    assert run.output().splitlines()[-1] == f"[bloom-agent] {note}"


@pytest.mark.parametrize("content", ["", "[]", '{"attempt": 1, "status": []}'])
def test_what_a_run_says_about_itself_cannot_keep_its_end_from_being_recorded(run: Run, content: str) -> None:
    _say(run, content)
    assert run.run_agent().code == 0
    assert run.output().splitlines()[-1] == "[bloom-agent] The training process ended with exit code 0."


def _say(run: Run, latest: str) -> None:
    """A training that writes nothing but its latest.json."""
    run.script(f"import os; os.mkdir('traincard'); open('traincard/latest.json', 'w').write({latest!r})")


def test_signal_that_ended_the_training_is_recorded(run: Run) -> None:
    run.script("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    end = run.run_agent()
    assert (end.code, end.signal, end.reason) == (None, signal.SIGSEGV, "ended")
    assert "SIGSEGV" in end.sentence


def test_command_that_is_not_there_says_so_in_the_log(run: Run) -> None:
    run.spec = replace(run.spec, command=("no-such-python", "train.py"))
    assert run.run_agent().code == 127
    assert "no-such-python could not be started" in run.output()


def test_training_runs_in_the_run_directory_with_nothing_on_its_input(run: Run) -> None:
    run.script(
        "import json, os, sys\n"
        "facts = dict(folder=os.getcwd(), group=os.getpgrp(), session=os.getsid(0), input=sys.stdin.read())\n"
        "json.dump({**facts, 'pid': os.getpid()}, open('facts.json', 'w'))\n"
    )
    run.run_agent()
    facts = run.said("facts.json")
    assert isinstance(facts, dict)
    assert (facts["folder"], facts["input"]) == (str(run.path), "")
    assert facts["group"] == facts["pid"] == run.agent.group
    assert facts["session"] != os.getsid(0)


def test_a_command_can_run_in_a_folder_of_the_run_directory_and_the_log_says_what_was_noted(run: Run) -> None:
    (run.path / "work").mkdir()
    (run.path / "work" / "theirs.py").write_text("import os; print('in', os.getcwd())")
    run.spec = replace(
        run.spec, command=(sys.executable, "-S", "theirs.py"), folder="work", note="--resume was added."
    )
    assert run.run_agent().code == 0
    assert f"in {run.path / 'work'}" in run.output()
    assert "[bloom-agent] --resume was added." in run.output()


@pytest.mark.parametrize("folder", ["/etc", "../elsewhere", "work/../.."])
def test_a_folder_outside_of_the_run_directory_is_refused(folder: str) -> None:
    with raises(ValueError, code="invalid_job"):
        JobSpec("job", Path("/run"), 1, ("python",), folder=folder)


def test_second_agent_ends_at_once_and_changes_nothing(run: Run) -> None:
    run.script("print('first'); input_ = __import__('time').sleep(60)")
    with run.start_agent() as first:
        run.wait_for_output("first")
        before = (run.output(), run.files.agent.read_text(), sorted(os.listdir(run.files.folder)))
        run.spec = run.attempt(2)
        with run.start_agent() as second:
            assert second.wait(TIMEOUT_SECONDS) == IN_USE
        assert (run.output(), run.files.agent.read_text(), sorted(os.listdir(run.files.folder))) == before
        os.killpg(run.agent.group, signal.SIGKILL)
        assert first.wait(TIMEOUT_SECONDS) == 0


def test_an_attempt_runs_once_and_older_ones_never_again(run: Run) -> None:
    run.script("open('runs', 'a').write('x')")
    run.spec = run.attempt(2)
    run.run_agent()
    for number in (2, 1):
        run.spec = run.attempt(number)
        with run.start_agent() as again:
            assert again.wait(TIMEOUT_SECONDS) == ALREADY_RAN
    run.spec = run.attempt(3)
    run.run_agent()
    assert (run.path / "runs").read_text() == "xx"
    assert (run.exit(2).attempt, run.exit(3).attempt) == (2, 3)


def test_an_attempt_whose_agent_was_killed_is_not_repeated(run: Run) -> None:
    run.script("print('on'); import time; time.sleep(60)")
    with run.start_agent() as agent:
        run.wait_for_output("on")
        agent.kill()
    os.killpg(run.agent.group, signal.SIGKILL)
    run.wait_until_free()
    assert run.files.read_exit(1) is None
    with run.start_agent() as again:
        assert again.wait(TIMEOUT_SECONDS) == ALREADY_RAN


def test_lock_is_held_until_the_training_is_gone_too(run: Run) -> None:
    run.script("print('on'); import time; time.sleep(60)")
    with run.start_agent() as agent:
        run.wait_for_output("on")
        agent.kill()
    assert run.agent.training.lives
    assert is_held(run.files.lock)
    os.killpg(run.agent.group, signal.SIGKILL)
    run.wait_until_free()


def _is_on_record(run: Run, attempt: int) -> bool:
    record = run.files.read_agent()
    return record is not None and record.training.lives and record.attempt == attempt


def test_agents_killed_at_any_moment_leave_no_training_that_cannot_be_found(run: Run) -> None:
    run.script("import time; time.sleep(60)")
    generator = random.Random(4)
    for number in range(1, 9):
        run.spec = run.attempt(number)
        with run.start_agent() as agent:
            time.sleep(generator.uniform(0.05, 0.25))
            agent.kill()
        # A fork that still waited for the agent ends by itself; one that runs is on record.
        wait_until(
            lambda: not is_held(run.files.lock) or _is_on_record(run, number),  # noqa: B023
            "the run to be free or its training to be on record",
        )
        if is_held(run.files.lock):
            os.killpg(run.agent.group, signal.SIGKILL)
        run.wait_until_free()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "there is no job to run"),
        ("{}", "job.json does not describe a job"),
        ('{"v": 99', "cannot be started"),
        (NEWER_JOB, "Install a newer"),
    ],
)
def test_agent_without_a_usable_job_announces_why(run: Run, text: str | None, words: str) -> None:
    run.files.create_folder()
    if text is not None:
        run.files.job.write_text(text)
    reader, writer = os.pipe()
    command = [sys.executable, "-m", "gpubloom.agent", str(run.path), "--announce", str(writer)]
    assert subprocess.run(command, pass_fds=[writer], check=False).returncode == NO_JOB
    os.close(writer)
    with open(reader) as news:
        assert words in json.load(news)["problem"]
    assert not is_held(run.files.lock)


def test_processes_that_the_training_leaves_behind_are_ended(run: Run) -> None:
    # One stays in the group and keeps the output open, one leads its own session as ranks of launchers do.
    run.script(
        "import json, subprocess, sys\n"
        "sleep = [sys.executable, '-S', '-c', 'import time; time.sleep(60)']\n"
        "near = subprocess.Popen(sleep)\n"
        "far = subprocess.Popen(sleep, start_new_session=True)\n"
        "json.dump([near.pid, far.pid], open('left.json', 'w'))\n"
    )
    assert run.run_agent().code == 0
    left = run.said("left.json")
    assert isinstance(left, list)
    assert len(left) == 2
    for pid in left:
        wait_until(
            lambda pid=pid: not os.path.exists(f"/proc/{pid}"), "a process that was left behind to end"
        )  # type: ignore[misc]


def test_deleted_run_directory_ends_the_training_and_comes_not_back(run: Run) -> None:
    run.script("print('on'); import time; time.sleep(60)")
    with run.start_agent() as agent:
        run.wait_for_output("on")
        training = run.agent.training
        for folder, _, names in os.walk(run.path, topdown=False):
            for name in names:
                os.unlink(os.path.join(folder, name))
            os.rmdir(folder)
        assert agent.wait(TIMEOUT_SECONDS) != 0
    assert not training.lives
    assert not run.path.exists()
