"""The user data with which a plain machine or a container of any provider starts the agent.

The script that prepares a machine is `bootstrap.sh`. The addresses of the job are written to files that only
root reads, and from there into the environment of the job: they are arguments of no process. On a machine
the script ends at once, and the job goes on without it; a container lives as long as the script.
A machine that nobody terminates ends itself: a while after its job, and at its longest life.
"""

import math
import os
import shlex
from functools import cache
from importlib.resources import files
from typing import Literal

from gpubloom.agent.remote.link import VOLUME_SCHEME, VOLUME_VARIABLE
from gpubloom.errors import InputError
from gpubloom.providers.cloud import Launch
from gpubloom.storage.ssh_store import SshAccess

# A line that no address and no command contains, so that what lies between two of them is taken as it is.
_END = "BLOOM_END_OF_FILE"
# Whoever rented a machine gives it back within seconds of its job's end; this is for when nobody is left.
_IDLE_SECONDS = 1800
# What a start needs at least, and with PyTorch and its libraries, of which the wheels are unpacked.
_DISK_GB, _DISK_GB_WITH_PACKAGES = 1, 12

# For a network where machines reach mirrors only: a setting of this server, and what it is called for the
# programs that install packages there.
_MIRRORS = {
    "BLOOM_PACKAGE_INDEX": ("PIP_INDEX_URL", "UV_DEFAULT_INDEX"),
    "BLOOM_TORCH_INDEX": ("BLOOM_TORCH_INDEX",),
    "BLOOM_PYTHON_BUILDS": ("UV_PYTHON_DOWNLOADS_JSON_URL",),
}

_SCRIPT = """\
#!/bin/bash
# Starts a job of GPU Bloom. Its output is in boot.log and job.log in $BLOOM_HOME (default: {home}).
umask 077
export BLOOM_HOME="${{BLOOM_HOME:-{home}}}"
mkdir -p "$BLOOM_HOME" && cd "$BLOOM_HOME" || exit 1
# A job may be reading the files below.
[ -e started ] && exec bash bootstrap.sh boot
cat >settings <<'{end}'
{settings}
{end}
cat >report-address <<'{end}'
{report_address}
{end}
cat >environment <<'{end}'
{secrets}{start}
{end}
{store}cat >job.sh <<'{end}'
set -a
. "$BLOOM_HOME/environment"
set +a
[ -d "$BLOOM_HOME/venv" ] && export PATH="$BLOOM_HOME/venv/bin:$PATH"
{command}
{end}
cat >bootstrap.sh <<'{end}'
{bootstrap}
{end}
exec bash bootstrap.sh boot
"""


# The disk of the machine is the store: this server connects to it, with keys that are made for this attempt.
_SSH_STORE = """\
mkdir -p store
cat >machine_store.sh <<'{end}'
{program}
{end}
cat >host-key <<'{end}'
{host_key}
{end}
cat >authorized-key <<'{end}'
{authorized_key}
{end}
"""


@cache
def _script(name: str) -> str:
    return files("gpubloom.providers").joinpath(name).read_text()


def _exports() -> list[str]:
    """The mirrors that this server names, as lines for a shell. InputError: one is no address."""
    lines = []
    for setting, variables in _MIRRORS.items():
        address = os.environ.get(setting, "").strip()
        if address and not address.isprintable():
            raise InputError("invalid_argument", f"{setting} must be one line with an address")
        lines += [f"export {name}={shlex.quote(address)}" for name in variables if address]
    return lines


def _ssh_store(access: SshAccess) -> str:
    program = _script("machine_store.sh")
    return _SSH_STORE.format(
        end=_END, program=program, host_key=access.host_key.strip(), authorized_key=access.authorized_key
    )


def _stored(address: str) -> str:
    """The name of a file in the store on the machine; empty: the address leads elsewhere."""
    name, _, _ = address.partition("#")
    return name.removeprefix(VOLUME_SCHEME) if name.startswith(VOLUME_SCHEME) else ""


def _start(address: str) -> str:
    """The start address for the shell that runs the job, with what stands behind its #."""
    if not (name := _stored(address)):
        return f"BLOOM_START={shlex.quote(address)}"
    _, mark, secrets = address.partition("#")
    start = shlex.quote(f"/store/{name}{mark}{secrets}")
    return f'{VOLUME_VARIABLE}="$BLOOM_HOME/store"\nBLOOM_START="file://$BLOOM_HOME"{start}'


def user_data_script(
    launch: Launch,
    *,
    ends: Literal["power_off", "delete_pod"] = "power_off",
    home: str = "/opt/bloom",
    api: str = "",
    idle_seconds: int = _IDLE_SECONDS,
) -> str:
    """For a shell, as root, on a fresh machine; doing it again changes nothing.

    `ends`: how the machine ends itself; a pod is deleted through `api`, and must not run a job twice.
    """
    for text in (launch.command, launch.start_address, launch.report_address, *launch.secrets.values()):
        if _END in text or "\0" in text:
            raise InputError("invalid_argument", "the command and the address of a launch must be plain text")
    for address in (launch.start_address, launch.report_address):
        if "\n" in address:
            raise InputError("invalid_argument", "the address of a launch must be one line")
    settings = {
        "ends": ends,
        "api": shlex.quote(api),
        "gpus": launch.gpus,
        "idle": idle_seconds,
        "longest": "" if launch.longest_seconds is None else math.ceil(launch.longest_seconds),
        "disk_gb": _DISK_GB_WITH_PACKAGES if launch.packages else _DISK_GB,
        "packages": f"({shlex.join(launch.packages)})",
        "start_file": shlex.quote(_stored(launch.start_address)),
    }
    return _SCRIPT.format(
        end=_END,
        home=home,
        settings="\n".join([*(f"{name}={value}" for name, value in settings.items()), *_exports()]),
        start=_start(launch.start_address),
        store="" if launch.ssh is None else _ssh_store(launch.ssh),
        secrets="".join(f"{name}={shlex.quote(value)}\n" for name, value in launch.secrets.items()),
        report_address=launch.report_address,
        command=launch.command,
        bootstrap=_script("bootstrap.sh"),
    )
