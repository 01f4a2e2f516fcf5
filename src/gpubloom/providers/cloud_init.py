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

from gpubloom.errors import InputError
from gpubloom.providers.cloud import Launch

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
{secrets}BLOOM_START={address}
{end}
cat >job.sh <<'{end}'
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


@cache
def _bootstrap() -> str:
    return files("gpubloom.providers").joinpath("bootstrap.sh").read_text()


def _exports() -> list[str]:
    """The mirrors that this server names, as lines for a shell. InputError: one is no address."""
    lines = []
    for setting, variables in _MIRRORS.items():
        address = os.environ.get(setting, "").strip()
        if address and not address.isprintable():
            raise InputError("invalid_argument", f"{setting} must be one line with an address")
        lines += [f"export {name}={shlex.quote(address)}" for name in variables if address]
    return lines


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
    }
    return _SCRIPT.format(
        end=_END,
        home=home,
        settings="\n".join([*(f"{name}={value}" for name, value in settings.items()), *_exports()]),
        address=shlex.quote(launch.start_address),
        secrets="".join(f"{name}={shlex.quote(value)}\n" for name, value in launch.secrets.items()),
        report_address=launch.report_address,
        command=launch.command,
        bootstrap=_bootstrap(),
    )
