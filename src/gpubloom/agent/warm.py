"""Runs a script in a process that was forked, as `python script.py` would in a fresh one.

The warm parent: a Python that has already imported what training needs, and forks for each job.

`python -m gpubloom.agent.warm --channel N MODULE …` imports the modules, says so on the channel, and serves
requests until the other end is closed. Each request is a run directory and the descriptors that go with it;
the fork becomes the agent, and the agent's fork the training process. Nothing is computed here and no
thread is running when it forks, so a fork is as good as a fresh start.
"""

import argparse
import gc
import importlib
import io
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from gpubloom.agent.attempt import announce_to, run_attempt
from gpubloom.agent.detach import detach
from gpubloom.agent.processes import thread_count
from gpubloom.agent.spec import JobSpec
from gpubloom.sandbox.launch import inside_environment
from gpubloom.sandbox.namespaces import confine_fork
from gpubloom.sandbox.options import Options

_CANNOT_OPEN = 2


@dataclass(frozen=True)
class Script:
    """`arguments[0]` is the script, relative to `folder`; the environment replaces the present one."""

    folder: Path
    arguments: Sequence[str]
    environment: Mapping[str, str]

    def run(self) -> None:
        """Called at the bottom of the stack: what the script raises ends the interpreter as it should."""
        os.environ.clear()
        os.environ.update(self.environment)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _open_standard_streams()
        _seed_anew()
        path = self.folder / self.arguments[0]
        sys.argv = list(self.arguments)
        # How to run it again, as a record of the run says.
        sys.orig_argv = [sys.executable, *self.arguments]
        sys.path.insert(0, str(path.parent))
        try:
            source = path.read_bytes()
        except OSError as problem:
            sys.stderr.write(f"can't open file {str(path)!r}: {problem.strerror}\n")
            sys.exit(_CANNOT_OPEN)
        main = ModuleType("__main__")
        main.__dict__.update(__file__=str(path), __builtins__=__builtins__)
        # Pickle and multiprocessing look for what the script defines here.
        sys.modules["__main__"] = main
        try:
            exec(compile(source, str(path), "exec", dont_inherit=True), main.__dict__)  # noqa: S102 - that is the job
        except Exception as problem:  # noqa: BLE001 - reported as the interpreter would, then the process ends
            # The first frame is this one; a person who reads the traceback wrote the second.
            trace = problem.__traceback__ and problem.__traceback__.tb_next
            sys.excepthook(type(problem), problem.with_traceback(trace), trace)
            sys.exit(1)


def _open_standard_streams() -> None:
    """Streams without buffers, as PYTHONUNBUFFERED asks for; the fork's own were set up for other files."""
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # type: ignore[misc] # noqa: SIM115
    sys.stdout = sys.__stdout__ = _unbuffered(1, "strict")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _unbuffered(2, "backslashreplace")  # type: ignore[misc]


def _unbuffered(descriptor: int, errors: str) -> io.TextIOWrapper:
    raw = open(descriptor, "wb", buffering=0, closefd=False)  # noqa: SIM115 - lives as long as the process
    return io.TextIOWrapper(raw, encoding="utf-8", errors=errors, write_through=True)


def _seed_anew() -> None:
    """Random numbers that a fresh process would draw at import must differ between forks.

    Python's own `random` does so by itself.
    """
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed()


_MOST_DESCRIPTORS = 64


class _BecomeScript(BaseException):
    """Carries a script up to `main`, so that it runs with nothing of the agent below it on the stack."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self.script = script


def main() -> None:
    parser = argparse.ArgumentParser(prog="gpubloom.agent.warm", description=__doc__)
    parser.add_argument("--channel", type=int, required=True, help="descriptor of a sequential-packet socket")
    parser.add_argument("modules", nargs="*", help="modules to import in advance")
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
    # While modules are imported there is hardly any garbage; searching for it takes a fifth of the time.
    gc.disable()
    problem = _import(modules) or _threads_after_a_fork()
    # The end of a child is nobody's news here: the agent records everything.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # What exists now stays: collecting it would only copy the pages that forks share.
    gc.collect()
    gc.freeze()
    gc.enable()
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
            announce_to(os.dup(received[0]))({"refused": f"the process could not fork: {refused.strerror}"})
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
        if spec.confinement is not None:
            options = Options.from_json(spec.confinement)
            environment = inside_environment(options, environment, spec.secrets)
            confine_fork(options)
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
    if threads == 1:
        return None
    return (
        f"threads that still run after the imports, and that a forked process would not have: {threads - 1}"
    )


def _descriptors() -> set[int]:
    found = {int(name) for name in os.listdir("/proc/self/fd")}  # noqa: PTH208 - numbers, not paths
    # The listing itself was one of them.
    return {number for number in found if number > 2 and Path(f"/proc/self/fd/{number}").exists()}


if __name__ == "__main__":
    main()
