"""The warm parent: a Python that has already imported what training needs, and forks for each job.

`python -m gpubloom.agent.warm --channel N MODULE …` imports the modules, says so on the channel, and serves
requests until the other end is closed. Each request is a run directory and the descriptors that go with it;
the fork becomes the agent, and the agent's fork the training process. Nothing is computed here and no
thread is running when it forks, so a fork is as good as a fresh start.
"""

import argparse
import gc
import importlib
import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from gpubloom.agent.attempt import announce_to, run_attempt
from gpubloom.agent.detach import detach
from gpubloom.agent.processes import thread_count
from gpubloom.agent.script import Script
from gpubloom.agent.spec import JobSpec

_MOST_DESCRIPTORS = 64


class _BecomeScript(BaseException):
    """Carries a script up to `main`, so that it runs with nothing of the agent below it on the stack."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self.script = script


def main() -> None:
    parser = argparse.ArgumentParser(prog="gpubloom.agent.warm", description=__doc__)
    parser.add_argument("--channel", type=int, required=True, help="descriptor of a sequential-packet socket")
    parser.add_argument("modules", nargs="*", help="what to import beforehand")
    options = parser.parse_args()
    # `python -m` puts the folder it was started in first; nothing there is meant to be imported.
    sys.path.pop(0)
    channel = socket.socket(fileno=options.channel)
    channel.set_inheritable(False)
    script = None
    try:
        _serve(channel, options.modules)
    except _BecomeScript as become:
        script = become.script
    # Outside of the `except`: an error in the script has nothing to do with how it came to be here.
    if script is not None:
        script.run()


def _serve(channel: socket.socket, modules: Sequence[str]) -> None:
    problem = _import(modules) or _threads_after_a_fork()
    # The end of a child is nobody's news here: the agent records everything.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # What exists now stays: collecting it would only copy the pages that forks share.
    gc.collect()
    gc.freeze()
    try:
        channel.send(json.dumps({"problem": problem} if problem else {"ready": True}).encode())
    except OSError:
        return
    # Not the channel: a fork closes it, and its number then means something else.
    own = _descriptors() - {channel.fileno()}
    while not problem:
        message, received, _, _ = socket.recv_fds(channel, 1 << 16, _MOST_DESCRIPTORS)
        if not message:
            return
        for descriptor in received:
            os.set_inheritable(descriptor, False)
        run_dir = Path(json.loads(message)["run_dir"])
        try:
            pid = os.fork()
        except OSError as refused:
            announce_to(os.dup(received[0]))({"refused": f"it could not fork: {refused.strerror}"})
            pid = -1
        if pid == 0:
            channel.close()
            _be_the_agent(run_dir, answer=received[0], devices=received[1:], own=own)
        for descriptor in received:
            os.close(descriptor)


def _be_the_agent(run_dir: Path, answer: int, devices: Sequence[int], own: set[int]) -> NoReturn:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    detach(run_dir)

    def become(spec: JobSpec, environment: dict[str, str]) -> NoReturn:
        # What an exec would close: all that the agent opened and did not mean to pass on.
        for descriptor in _descriptors() - own:
            if not os.get_inheritable(descriptor):
                os.close(descriptor)
        raise _BecomeScript(Script(spec.run_dir, spec.command[1:], environment))

    code = run_attempt(
        run_dir, start="warm start", devices=devices, announce=announce_to(answer), become=become
    )
    # Without the farewells of the modules: this process never used them.
    os._exit(code)


def _import(modules: Sequence[str]) -> str | None:
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as problem:  # noqa: BLE001 - a module may fail in any way; plain starts still work
            return f"{name} cannot be imported ({type(problem).__name__}: {problem})"
    return None


def _threads_after_a_fork() -> str | None:
    """Forks once for trial: a library that knows about forks ends its threads before (OpenBLAS does)."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    threads = thread_count()
    return (
        None if threads == 1 else f"{threads - 1} threads run after the imports, and a fork would lose them"
    )


def _descriptors() -> set[int]:
    found = {int(name) for name in os.listdir("/proc/self/fd")}  # noqa: PTH208 - numbers, not paths
    # The listing itself was one of them.
    return {number for number in found if number > 2 and Path(f"/proc/self/fd/{number}").exists()}


if __name__ == "__main__":
    main()
