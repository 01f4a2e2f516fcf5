"""The sandbox for people's own scripts on this machine: what they can read, write and use.

Inside there is a read-only system and Python, a writable work folder and home, and nothing else: no other
file of this machine, no process, no network unless it was allowed, no variable of the server. Bubblewrap does
it; the agent stays outside. A server that runs as root starts scripts as nobody.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import gpubloom
from gpubloom.providers.local import sandbox_init
from gpubloom.traincard.nvml import opened_nvml

WORK_INSIDE = "/job/work"
HOME_INSIDE = "/job/home"

_NOBODY = 65_534
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


@dataclass(frozen=True)
class Limits:
    """What a script may take, all of its processes together; `file_bytes` is of one file, `cpu_seconds` of
    one process. With less than `least_free_bytes` left on the disk it is ended."""

    memory_bytes: int
    processes: int
    file_bytes: int
    cpu_seconds: int | None = None
    least_free_bytes: int = 256 << 20

    @classmethod
    def of_this_machine(cls, folder: Path, *, hours: float | None = None) -> "Limits":
        """Most of the memory, half of the free disk for one file, the time that all cores have in `hours`."""
        cores = os.cpu_count() or 1
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return cls(
            memory_bytes=int(memory * 0.85),
            processes=2_048 + 128 * cores,
            file_bytes=max(1 << 30, shutil.disk_usage(folder).free // 2),
            cpu_seconds=None if hours is None else int(hours * 3600 * cores) + 60,
        )


@dataclass(frozen=True)
class Sandbox:
    """`work` and `home` are folders outside that the script may write; `hidden` is covered wherever it would
    show. `gpus`: the UUIDs of its GPUs."""

    work: Path
    home: Path
    hidden: Path
    limits: Limits
    network: bool = False
    gpus: tuple[str, ...] = ()

    def command(self, inner: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
        """What to run out here so that `inner` runs inside, in the work folder; `environment` is added."""
        options = {
            "bwrap": shutil.which("bwrap") or "bwrap",
            "arguments": self._arguments(),
            "files": _own_settings(),
            "environment": {**_environment(), **environment},
            "limits": asdict(self.limits),
            "user": _NOBODY if os.geteuid() == 0 else None,
            "python": [sys.executable, "-I", "-S"],
            "work": str(self.work),
        }
        return (sys.executable, "-I", "-S", sandbox_init.__file__, json.dumps(options), *inner)

    def prepare(self) -> None:
        """Makes the folders, and lets the script's user write what is in them."""
        self.home.mkdir(parents=True, exist_ok=True)
        self.work.mkdir(parents=True, exist_ok=True)
        if os.geteuid() != 0:
            return
        for top in (self.home, self.work):
            for folder, folders, names in os.walk(top):
                for name in [*folders, *names]:
                    os.chown(Path(folder, name), _NOBODY, _NOBODY, follow_symlinks=False)
            os.chown(top, _NOBODY, _NOBODY, follow_symlinks=False)

    def _arguments(self) -> list[str]:
        memory = str(max(64 << 20, self.limits.memory_bytes // 4))
        # First of all: Python may lie in what is /tmp outside.
        own_files = ["--perms", "1777", "--size", memory, "--tmpfs", "/tmp"]  # noqa: S108 - the sandbox's own
        arguments = [*_namespaces(network=self.network), *_system(), *own_files, *_python(), *self._covers()]
        for path in (f"/etc/{name}" for name in (*_SETTINGS, *(_NETWORK_SETTINGS if self.network else ()))):
            arguments += [*_way_to(path), "--ro-bind-try", path, path]
        arguments += ["--proc", "/proc", "--dev", "/dev"]
        arguments += ["--perms", "1777", "--size", memory, "--tmpfs", "/dev/shm"]  # noqa: S108
        if self.gpus:
            arguments += ["--ro-bind-try", "/sys", "/sys"]
            for node in (*gpu_nodes(self.gpus), *_GPU_NODES):
                arguments += ["--dev-bind-try", f"/dev/{node}", f"/dev/{node}"]
        else:
            processors = "/sys/devices/system"
            arguments += [*_way_to(processors), "--ro-bind-try", processors, processors]
        arguments += ["--remount-ro", "/dev", *_way_to(WORK_INSIDE), "--bind", str(self.work), WORK_INSIDE]
        arguments += ["--bind", str(self.home), HOME_INSIDE, "--chdir", WORK_INSIDE]
        return [
            *arguments,
            *_way_to(sandbox_init.INSIDE_PATH),
            "--ro-bind",
            sandbox_init.__file__,
            sandbox_init.INSIDE_PATH,
        ]

    def _covers(self) -> list[str]:
        """The server's own files may lie inside of something that is shown."""
        shown = [Path("/usr"), *(Path(path) for path in _python_folders())]
        home = self.hidden.resolve()
        return ["--tmpfs", str(home)] if any(home.is_relative_to(folder) for folder in shown) else []


def why_no_sandbox() -> str | None:
    """Why scripts cannot run in a sandbox here, and what to do about it; None: they can. Tries it."""
    if not sys.platform.startswith("linux"):
        return "The sandbox for scripts works on Linux only."
    program = shutil.which("bwrap")
    if program is None:
        return (
            "Bubblewrap is not installed on the server. Install it (on Debian and Ubuntu: apt install "
            "bubblewrap)."
        )
    command = [program, *_namespaces(network=False), *_system(), "--proc", "/proc", "--dev", "/dev"]
    command += ["--perms", "1777", "--size", "1048576", "--tmpfs", "/tmp", "--", "/usr/bin/env", "true"]  # noqa: S108
    try:
        tried = subprocess.run(command, capture_output=True, timeout=_PROBE_SECONDS, check=False, env={})
    except (OSError, subprocess.TimeoutExpired) as problem:
        return f"Bubblewrap does not start on the server: {problem}."
    if tried.returncode == 0:
        return None
    words = tried.stderr.decode(errors="replace").strip().removeprefix("bwrap: ") or "no error message"
    return (
        f"The server's system does not let bubblewrap create a sandbox ({words[:200]}). Allow user "
        "namespaces: sysctl kernel.unprivileged_userns_clone=1; on Ubuntu "
        "kernel.apparmor_restrict_unprivileged_userns=0; in a container, use a security profile that "
        "permits them."
    )


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


def _namespaces(*, network: bool) -> list[str]:
    arguments = [
        "--die-with-parent",
        "--unshare-ipc",
        "--unshare-pid",
        "--unshare-uts",
        "--unshare-cgroup-try",
    ]
    arguments += ["--hostname", "job"]
    if not network:
        arguments.append("--unshare-net")
    if os.geteuid() != 0:
        return [*arguments, "--unshare-user", "--disable-userns", "--uid", "1000", "--gid", "1000"]
    # Root needs no user namespace to set up the sandbox; all it may do inside is to become nobody.
    return [*arguments, "--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]


def _system() -> list[str]:
    arguments = ["--ro-bind", "/usr", "/usr"]
    for name in _SYSTEM_LINKS:
        path = Path("/", name)
        if path.is_symlink():
            arguments += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            arguments += ["--ro-bind", str(path), str(path)]
    return arguments


def _python() -> list[str]:
    arguments: list[str] = []
    for folder in _python_folders():
        arguments += [*_way_to(folder), "--ro-bind", folder, folder]
    return arguments


def _way_to(path: str) -> list[str]:
    """The folders above a mount point. Left to itself, bubblewrap makes them for root alone."""
    arguments: list[str] = []
    for folder in reversed(Path(path).parents[:-1]):
        arguments += ["--perms", "0755", "--dir", str(folder)]
    return arguments


def _python_folders() -> list[str]:
    """Where this Python and its packages lie, outside of /usr; outer folders before inner ones."""
    found = {sys.prefix, sys.base_prefix, sys.base_exec_prefix, gpubloom.__path__[0]}
    found |= {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), sysconfig.get_path("stdlib")}
    # A chain of links may pass through folders that none of these contains.
    found.add(str(Path(sys.executable).resolve().parent.parent))
    folders = sorted(Path(path) for path in found)
    outermost = [
        folder
        for folder in folders
        if not any(folder != other and folder.is_relative_to(other) for other in [*folders, Path("/usr")])
        and not folder.is_relative_to("/usr")
    ]
    return [str(folder) for folder in outermost if folder != Path("/") and folder.is_dir()]


def _own_settings() -> dict[str, str]:
    number = _NOBODY if os.geteuid() == 0 else 1000
    return {
        "/etc/passwd": f"script:x:{number}:{number}:script:{HOME_INSIDE}:/bin/sh\n",
        "/etc/group": f"script:x:{number}:\n",
    }


def _environment() -> dict[str, str]:
    programs = [str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"]
    return {
        "PATH": os.pathsep.join(dict.fromkeys(programs)),
        "HOME": HOME_INSIDE,
        "USER": "script",
        "LANG": "C.UTF-8",
        "TMPDIR": "/tmp",  # noqa: S108 - the sandbox's own
        # Output must reach the log when it is printed, not when a buffer is full.
        "PYTHONUNBUFFERED": "1",
        # There is no screen to draw on.
        "MPLBACKEND": "Agg",
    }
