"""The sandboxes of jobs on this machine: what each can read, write and use.

Inside there is a read-only system and Python, what belongs to the job, and nothing else: no other file of
this machine, no process, no network unless it was allowed, no variable of the server. The agent stays
outside. A server that runs as root gives each tenant a user. `gpubloom.sandbox` does it.
"""

import functools
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import gpubloom
from gpubloom.sandbox.launch import COMMAND
from gpubloom.sandbox.options import Limits, Mount, Options
from gpubloom.sandbox.owners import user_of
from gpubloom.traincard.nvml import opened_nvml

RUN_INSIDE = "/job"
WORK_INSIDE = f"{RUN_INSIDE}/work"
HOME_INSIDE = f"{RUN_INSIDE}/home"
# Of a cache: where our own programs look.
CACHE_FOLDER = "gpubloom"

_PROBE_SECONDS = 20.0
_SYSTEM_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
# Of /etc only what programs need to find libraries, hosts and certificates; no passwords, no private keys.
_SETTINGS = (
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime", "nsswitch.conf", "host.conf"),
    *("protocols", "services", "ssl/certs", "ssl/openssl.cnf", "ca-certificates", "pki/tls/certs"),
    *("pki/ca-trust/extracted", "OpenCL/vendors", "vulkan", "fonts"),
)
_NETWORK_SETTINGS = ("resolv.conf", "hosts", "gai.conf")
_GPU_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia-caps")


def limits_of_a_script(folder: Path, *, hours: float | None = None) -> Limits:
    """Most of the memory, half of the free disk for one file, the time that all cores have in `hours`."""
    cores = os.cpu_count() or 1
    memory = int(_machine_memory() * 0.85)
    return Limits(
        memory_bytes=memory,
        processes=2_048 + 128 * cores,
        file_bytes=max(1 << 30, shutil.disk_usage(folder).free // 2),
        process_bytes=memory,
        cpu_seconds=None if hours is None else int(hours * 3600 * cores) + 60,
    )


def limits_of_a_training() -> Limits:
    """The plan says what a training needs, and that may be nearly all; the rest is for the server.

    A training that finds the disk full pauses by itself, and the quota of its owner bounds what it writes.
    """
    processes = 4_096 + 256 * (os.cpu_count() or 1)
    return Limits(memory_bytes=int(_machine_memory() * 0.95), processes=processes, least_free_bytes=0)


def _machine_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@dataclass(frozen=True)
class Sandbox:
    """`hidden` is the server's home, covered wherever it would show. `tenant`: whose job it is. `gpus`: the
    UUIDs of its GPUs."""

    run_dir: Path
    hidden: Path
    tenant: str
    limits: Limits
    network: bool = False
    gpus: tuple[str, ...] = ()

    def of_a_script(
        self, work: Path, home: Path, environment: Mapping[str, str], *, reports: Sequence[Path] = ()
    ) -> Options:
        """It sees its work folder and a home, and writes to both. `reports`: the folders of the run directory
        that its Reporter writes."""
        shown = {WORK_INSIDE: work, HOME_INSIDE: home}
        shown |= {f"{RUN_INSIDE}/{folder.name}": folder for folder in reports}
        for folder in shown.values():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        mounts = (
            *self._common(),
            *(
                Mount("bind", inside, str(folder.resolve()), writable=True, owned=True)
                for inside, folder in shown.items()
            ),
        )
        return self._options("script", mounts, WORK_INSIDE, {**_environment(), **environment})

    def of_a_training(self, inputs: Sequence[Path], cache: Path, *, noun: str, python: str) -> Options:
        """It sees its run directory and its inputs where they are; `cache` keeps what its tenant compiled.

        The agent's own files are covered, and it cannot write the log that the agent writes.
        """
        run_dir = self.run_dir.resolve()
        logs = run_dir / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        mounts = (
            *self._common(python),
            *(Mount("bind", folder, folder) for folder in _toolchains()),
            Mount("tmpfs", HOME_INSIDE, writable=True, size=self._temporary),
            *self._inputs(inputs),
            Mount("bind", str(cache), str(cache.resolve()), writable=True, owned=True),
            Mount("bind", str(self.run_dir), str(run_dir), writable=True, owned=True),
            Mount("bind", str(self.run_dir / "logs"), str(logs), owned=True),
            Mount("tmpfs", str(self.run_dir / "agent")),
        )
        own = {
            **{name: value for name, value in _environment(python).items() if name != "PATH"},
            # Compilers keep their results here: code that another tenant could have written is never run.
            "XDG_CACHE_HOME": str(cache),
            "TORCHINDUCTOR_CACHE_DIR": str(cache / CACHE_FOLDER),
            "CUDA_CACHE_PATH": str(cache / "cuda"),
        }
        return replace(self._options(noun, mounts, str(self.run_dir), own), inherits=True)

    def _options(self, noun: str, mounts: tuple[Mount, ...], folder: str, own: Mapping[str, str]) -> Options:
        return Options(
            noun=noun,
            mounts=mounts,
            limits=self.limits,
            folder=folder,
            disk=str(self.run_dir.resolve()),
            group=f"job-{self.run_dir.name}",
            user=self._user,
            network=self.network,
            environment=own,
            bubblewrap=shutil.which("bwrap"),
        )

    @property
    def _user(self) -> int | None:
        return user_of(self.tenant) if os.geteuid() == 0 else None

    @property
    def _temporary(self) -> int:
        return max(64 << 20, self.limits.memory_bytes // 4)

    def _common(self, python: str = sys.executable) -> tuple[Mount, ...]:
        number = os.geteuid() if self._user is None else self._user
        settings = (*_SETTINGS, *(_NETWORK_SETTINGS if self.network else ()))
        if self.gpus:
            nodes = (*gpu_nodes(self.gpus), *_GPU_NODES)
            devices = (
                Mount("bind", "/sys", "/sys", optional=True),
                *(Mount("device", f"/dev/{node}", f"/dev/{node}") for node in nodes),
            )
        else:
            devices = (Mount("bind", "/sys/devices/system", "/sys/devices/system", optional=True),)
        return (
            *_system(),
            # First of all: Python may lie in what is /tmp outside.
            Mount("tmpfs", "/tmp", writable=True, size=self._temporary),  # noqa: S108 - the sandbox's own
            *(Mount("bind", folder, folder, owned=True) for folder in _python_folders(python)),
            *self._covers(python),
            *(Mount("bind", f"/etc/{name}", f"/etc/{name}", optional=True) for name in settings),
            Mount("text", "/etc/passwd", f"job:x:{number}:{number}:job:{HOME_INSIDE}:/bin/sh\n"),
            Mount("text", "/etc/group", f"job:x:{number}:\n"),
            Mount("proc", "/proc"),
            Mount("dev", "/dev"),
            Mount("tmpfs", "/dev/shm", writable=True, size=self._temporary),  # noqa: S108
            *devices,
        )

    def _inputs(self, inputs: Sequence[Path]) -> Iterator[Mount]:
        """A folder of the operator's data may hold the server's home, of which only inputs are shown."""
        home = self.hidden.resolve()
        shown = [Mount("bind", path, path, owned=True) for path in _outermost(inputs)]
        yield from shown
        if any(home.is_relative_to(Path(each.source).resolve()) for each in shown):
            yield _cover(home)
            for path in _outermost([path for path in inputs if path.resolve().is_relative_to(home)]):
                yield Mount("bind", path, path, owned=True)

    def _covers(self, python: str) -> tuple[Mount, ...]:
        """The server's own files may lie inside of something that is shown."""
        shown = [Path("/usr"), *(Path(path) for path in _python_folders(python))]
        home = self.hidden.resolve()
        is_shown = any(home.is_relative_to(folder) for folder in shown)
        return (_cover(home),) if is_shown else ()


def why_no_sandbox() -> str | None:
    """Why jobs cannot run in a sandbox here, and what to do about it; None: they can. Tries it."""
    if not sys.platform.startswith("linux"):
        return "The sandbox for jobs works on Linux only."
    program = shutil.which("bwrap")
    if (problem := _problem(program)) is None:
        return None
    if program is None:
        return (
            f"The server cannot create a sandbox by itself ({problem}). Install bubblewrap (on Debian and "
            "Ubuntu: apt install bubblewrap)."
        )
    return (
        f"The server's system does not let bubblewrap create a sandbox ({problem}). Allow user "
        "namespaces: sysctl kernel.unprivileged_userns_clone=1; on Ubuntu "
        "kernel.apparmor_restrict_unprivileged_userns=0; in a container, use a security profile that "
        "permits them."
    )


def why_no_warm_sandbox() -> str | None:
    """Why a fork of the warm parent cannot confine itself; None: it can."""
    if (problem := _problem(None)) is None:
        return None
    return f"a forked process cannot confine itself here ({problem})"


def _problem(program: str | None) -> str | None:
    """What a trial says; asked once while it says nothing."""
    if program is not None:
        # A program that was replaced may behave differently.
        return _trial(program, Path(program).stat().st_mtime_ns)
    return _trial(None, 0)


@functools.cache
def _trial(program: str | None, _changed: int) -> str | None:
    with tempfile.TemporaryDirectory(prefix="gpubloom-") as folder:
        run_dir = Path(folder)
        (run_dir / "agent").mkdir()
        limits = Limits(memory_bytes=1 << 30, processes=1_000, least_free_bytes=0)
        sandbox = Sandbox(run_dir, run_dir, "trial", limits)
        options = replace(sandbox.of_a_script(run_dir / "work", run_dir / "home", {}), bubblewrap=program)
        job = {"confinement": options.to_json(), "command": ["/usr/bin/env", "true"]}
        (run_dir / "agent" / "job.json").write_text(json.dumps(job), encoding="utf-8")
        try:
            environment = {"BLOOM_RUN_DIR": folder}
            tried = subprocess.run(
                COMMAND, capture_output=True, timeout=_PROBE_SECONDS, check=False, env=environment
            )
        except (OSError, subprocess.TimeoutExpired) as problem:
            return str(problem)
    if tried.returncode == 0:
        return None
    words = tried.stderr.decode(errors="replace").strip().splitlines()
    return (words[-1] if words else "no error message").removeprefix("bwrap: ")[:200]


def gpu_nodes(gpus: Sequence[str]) -> tuple[str, ...]:
    """The device files of these GPUs, or of all GPUs if the driver does not map files to GPUs."""
    every = tuple(sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*")))
    with opened_nvml() as nvml:
        if nvml is None:
            return every
        try:
            handles = [nvml.nvmlDeviceGetHandleByUUID(gpu.encode()) for gpu in gpus]
            return tuple(f"nvidia{nvml.nvmlDeviceGetMinorNumber(handle)}" for handle in handles)
        except nvml.NVMLError:
            return every


def _cover(folder: Path) -> Mount:
    """Nothing in place of a folder. Writable: what the job may see of it is mounted in it later."""
    return Mount("tmpfs", str(folder), writable=True, size=1 << 20)


def _system() -> tuple[Mount, ...]:
    mounts = [Mount("bind", "/usr", "/usr")]
    for name in _SYSTEM_LINKS:
        path = Path("/", name)
        if path.is_symlink():
            mounts.append(Mount("link", str(path), str(path.readlink())))
        elif path.is_dir():
            mounts.append(Mount("bind", str(path), str(path)))
    return tuple(mounts)


def _python_folders(python: str = sys.executable) -> list[str]:
    """Where this Python, its packages and another Python lie, outside of /usr; outer before inner ones."""
    prefixes = {Path(sys.prefix), Path(sys.base_prefix), Path(sys.base_exec_prefix)}
    found = {Path(gpubloom.__path__[0])}
    found |= {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib", "stdlib")}
    for program in {Path(sys.executable), Path(python)}:
        prefixes.add(program.resolve().parent.parent)
        # A chain of links may pass through folders that none of these contains.
        found.add(program.parent)
        if (program.parent.parent / "pyvenv.cfg").exists():
            prefixes.add(program.parent.parent)
    for prefix in prefixes:
        found |= _parts_of(prefix)
    folders = _outermost([path for path in found if path.exists() and path != Path("/")])
    return [folder for folder in folders if not Path(folder).is_relative_to("/usr")]


def _parts_of(prefix: Path) -> set[Path]:
    """Python may be installed into a person's home, which holds more than Python."""
    if (Path.home() / ".local").is_relative_to(prefix):
        return {prefix / name for name in ("bin", "lib", "lib64", "include", "pyvenv.cfg")}
    return {prefix}


def _toolchains() -> list[str]:
    """Compilers and libraries that the environment names, where systems keep what is no part of them."""
    names = ("PATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CC", "CXX", "BLOOM_CC")
    named = [Path(part) for name in names for part in os.environ.get(name, "").split(os.pathsep) if part]
    found = {
        Path("/opt", path.relative_to("/opt").parts[0]) for path in named if Path("/opt") in path.parents
    }
    return [str(path) for path in sorted(found) if path.is_dir()]


def _outermost(paths: Sequence[Path]) -> list[str]:
    """Without those that lie in others."""
    found = sorted(set(paths))
    return [
        str(path)
        for path in found
        if not any(path != other and path.is_relative_to(other) for other in found)
    ]


def _environment(python: str = sys.executable) -> dict[str, str]:
    programs = [str(Path(python).parent), "/usr/local/bin", "/usr/bin", "/bin"]
    return {
        "PATH": os.pathsep.join(dict.fromkeys(programs)),
        "HOME": HOME_INSIDE,
        "USER": "job",
        "LANG": "C.UTF-8",
        "TMPDIR": "/tmp",  # noqa: S108 - the sandbox's own
        # Output must reach the log when it is printed, not when a buffer is full.
        "PYTHONUNBUFFERED": "1",
        # There is no screen to draw on.
        "MPLBACKEND": "Agg",
    }
