"""Stopping: asked once, waited for, and killed in the end."""

import os
import signal
from dataclasses import replace

import pytest

from tests.agent.runs import TIMEOUT_SECONDS, Run

SAVES = """
import signal, sys, time
def save(number, frame):
    open('asked', 'a').write('x')
    time.sleep(0.3)
    print('saved')
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print('on')
time.sleep(60)
"""

IGNORES = """
import signal, time
signal.signal(signal.SIGTERM, lambda *_: print('ignored'))
print('on')
while True:
    time.sleep(60)
"""


def test_sigterm_reaches_the_training_once_and_its_checkpoint_is_waited_for(run: Run) -> None:
    run.script(SAVES)
    with run.start_agent() as agent:
        run.wait_for_output("on\n")
        agent.terminate()
        assert agent.wait(TIMEOUT_SECONDS) == 0
    assert (run.exit().code, run.exit().reason) == (0, "stopped")
    assert "saved" in run.output()
    assert (run.path / "asked").read_text() == "x"


def test_second_sigterm_kills(run: Run) -> None:
    run.script(IGNORES)
    with run.start_agent() as agent:
        run.wait_for_output("on\n")
        agent.terminate()
        run.wait_for_output("ignored")
        agent.terminate()
        assert agent.wait(TIMEOUT_SECONDS) == 0
    assert (run.exit().signal, run.exit().reason) == (signal.SIGKILL, "stopped")


def test_training_that_ignores_sigterm_is_killed_when_its_grace_is_over(run: Run) -> None:
    run.script(IGNORES)
    run.spec = replace(run.spec, stop_grace_seconds=0.5)
    with run.start_agent() as agent:
        run.wait_for_output("on\n")
        agent.terminate()
        assert agent.wait(TIMEOUT_SECONDS) == 0
    assert run.exit().signal == signal.SIGKILL
    assert "did not stop in time" in run.output()


@pytest.mark.long
def test_time_limit_asks_the_training_to_save(run: Run) -> None:
    run.script(SAVES)
    run.spec = replace(run.spec, time_limit_seconds=4.0)
    end = run.run_agent()
    assert (end.code, end.reason) == (0, "time_limit")
    assert "saved" in run.output()
    assert end.sentence == "The time limit was reached; the training process ended with exit code 0."


def test_closed_terminal_stops_nothing(run: Run) -> None:
    run.script("print('on'); import time; time.sleep(0.5)")
    with run.start_agent() as agent:
        run.wait_for_output("on\n")
        os.kill(agent.pid, signal.SIGHUP)
        assert agent.wait(TIMEOUT_SECONDS) == 0
    assert (run.exit().code, run.exit().reason) == (0, "ended")
