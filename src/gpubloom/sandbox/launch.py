"""Runs the command of a job in its sandbox. Started as a file, so it has the standard library only.

It reads the job file by itself: what stands on a command line or in an environment can be read by others.
`inside` is its second life, as the first program that bubblewrap starts.
"""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

if __name__ == "__main__":
    # An isolated Python does not look where the file lies that it was given.
    sys.path.append(str(Path(__file__).parents[2]))

from gpubloom.sandbox import kernel, limiting
from gpubloom.sandbox.cgroup import ControlGroup
from gpubloom.sandbox.mounts import bubblewrap_arguments
from gpubloom.sandbox.namespaces import confine_fork
from gpubloom.sandbox.options import Limits, Options
from gpubloom.sandbox.owners import prepare_owners
from gpubloom.sandbox.watch import SIGNALS, threads_of, watch

COMMAND = (sys.executable, "-I", "-S", __file__)

_CANNOT_START = 127
_INFO_SECONDS = 10.0
# Devices are chosen by whoever starts the job; the rest of the environment comes with the options.
_CHOSEN_OUTSIDE = ("CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES")
# It names a folder outside of the sandbox, and triton would prefer it to the folder inside.
_LEFT_OUTSIDE = ("TRITON_CACHE_DIR",)


def inside_environment(
    options: Options, outside: Mapping[str, str], secrets: Sequence[str] = ()
) -> dict[str, str]:
    """The environment of the command. `secrets`: names of variables that the agent was given for it."""
    if options.inherits:
        inherited = {name: value for name, value in outside.items() if name not in _LEFT_OUTSIDE}
        return {**inherited, **options.environment}
    names = (*_CHOSEN_OUTSIDE, *secrets)
    return {**options.environment, **{name: outside[name] for name in names if name in outside}}


def run(run_dir: Path) -> NoReturn:
    """Outside: the job of a run directory, until it ended, and as it ended."""
    job = json.loads((run_dir / "agent" / "job.json").read_text(encoding="utf-8"))
    options = Options.from_json(job["confinement"])
    environment = inside_environment(options, os.environ, job.get("secrets") or ())
    if options.bubblewrap is None:
        confine_fork(options)
        _become(job["command"], environment)
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    maps = _map_owners(options)
    told = {
        "limits": job["confinement"]["limits"],
        "user": options.user,
        "reads_all": options.user is not None and not maps,
        "other_threads": threads_of(options.user),
        "environment": environment,
        "command": job["command"],
    }
    group = ControlGroup.create(options.group, options.limits)
    process, first = _start_bubblewrap(options, told, group)
    watch(process.pid, first, options, group)


def _map_owners(options: Options) -> bool:
    """Shows the server's files as the job's, for bubblewrap to take them from there."""
    if (users := prepare_owners(options)) is None:
        return False
    kernel.unshare(kernel.CLONE_NEWNS)
    kernel.make_private("/")
    covered: list[Path] = []
    for path in sorted(Path(each.source) for each in options.mounts if each.owned):
        # What lies in a folder is translated with it.
        if path.exists() and not any(path.is_relative_to(other) for other in covered):
            users.cover(str(path))
            covered.append(path)
    users.close()
    return True


def _start_bubblewrap(
    options: Options, told: dict[str, Any], group: ControlGroup | None
) -> "tuple[subprocess.Popen[bytes], int | None]":
    assert options.bubblewrap is not None
    arguments, texts = bubblewrap_arguments(options.mounts)
    information, information_end = os.pipe()
    kept = [information_end, _held(json.dumps(told))]
    for path, text in texts.items():
        kept.append(_held(text))
        arguments += ["--perms", "0444", "--ro-bind-data", str(kept[-1]), path]
    arguments = [*namespace_arguments(options), *arguments, "--remount-ro", "/dev", "--remount-ro", "/"]
    arguments += ["--chdir", options.folder, "--info-fd", str(information_end)]
    # By descriptor: its process 1 is seen inside, and with it what stands on its command line.
    told_at = kept[1]
    kept.append(_held("\0".join(arguments)))
    process = subprocess.Popen(
        [options.bubblewrap, "--args", str(kept[-1]), "--", *COMMAND, "inside", str(told_at)],
        # Nothing that a person chose: a variable such as LD_PRELOAD would act out here.
        env={},
        pass_fds=kept,
        # Signals to the run's process group reach this process alone, which passes them on properly.
        start_new_session=True,
        preexec_fn=None if group is None else group.join,
    )
    for descriptor in kept:
        os.close(descriptor)
    return process, _first_process(information)


def namespace_arguments(options: Options) -> list[str]:
    arguments = [
        "--die-with-parent",
        "--unshare-ipc",
        "--unshare-pid",
        "--unshare-uts",
        "--unshare-cgroup-try",
    ]
    arguments += ["--hostname", "job"]
    if not options.network:
        arguments.append("--unshare-net")
    if options.user is None:
        return [*arguments, "--unshare-user", "--disable-userns"]
    # Root needs no user namespace to set up the sandbox; all it may do inside is to become another user.
    arguments += ["--cap-drop", "ALL"]
    for name in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_DAC_READ_SEARCH"):
        arguments += ["--cap-add", name]
    return arguments


def _held(text: str) -> int:
    """A descriptor from which a text can be read once."""
    descriptor = os.memfd_create("sandbox")
    os.write(descriptor, text.encode())
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _first_process(information: int) -> int | None:
    """The sandbox's process 1, by the number it has out here; None when bubblewrap could not start it."""
    told = b""
    while select.select([information], [], [], _INFO_SECONDS)[0]:
        part = os.read(information, 4096)
        told += part
        if not part or b"}" in told:
            break
    os.close(information)
    try:
        return int(json.loads(told)["child-pid"])
    except (ValueError, KeyError):
        return None


def inside(descriptor: int) -> NoReturn:
    """The first program in the sandbox: becomes the command, without inherited descriptors or rights."""
    with os.fdopen(descriptor, "rb") as file:
        told = json.load(file)
    # The locks of the run and of its devices belong to those outside.
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    limits = Limits(**told["limits"])
    limiting.limit(
        limits, user=told["user"], reads_all=told["reads_all"], other_threads=told["other_threads"]
    )
    _become(told["command"], told["environment"])


def _become(command: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    try:
        os.execvpe(command[0], list(command), dict(environment))  # noqa: S606 - what the sandbox is for
    except OSError as problem:
        os.write(2, f"[sandbox] {command[0]} could not be started: {problem.strerror}\n".encode())
        os._exit(_CANNOT_START)


if __name__ == "__main__":
    if sys.argv[1:2] == ["inside"]:
        inside(int(sys.argv[2]))
    run(Path(os.environ["BLOOM_RUN_DIR"]))
