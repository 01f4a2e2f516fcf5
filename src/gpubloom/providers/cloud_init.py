"""The user data with which a plain machine of any provider starts the agent.

The address that the job starts from is written to a file that only root reads, and from there into the
environment of the job: it is an argument of no process. The script ends at once; the job goes on without it.
A machine that nobody terminates switches itself off: a while after its job, and at its longest life.
"""

import math
import shlex

from gpubloom.errors import InputError
from gpubloom.providers.cloud import Launch

# A line that no address and no command contains, so that what lies between two of them is taken as it is.
_END = "BLOOM_END_OF_FILE"
# Whoever rented a machine gives it back within seconds of its job's end; this is for when nobody is left.
_IDLE_SECONDS = 1800

_SCRIPT = """\
#!/bin/bash
# Starts a job of GPU Bloom. Its output is in boot.log in $BLOOM_HOME (default: /opt/bloom).
umask 077
base="${{BLOOM_HOME:-/opt/bloom}}"
mkdir -p "$base" && cd "$base" || exit 1
[ -e started ] && exit 0
touch started
exec >>boot.log 2>&1
export BLOOM_HOME="$base" HOME="${{HOME:-/root}}" DEBIAN_FRONTEND=noninteractive

cat >environment <<'{end}'
BLOOM_START={address}
{end}
cat >job.sh <<'{end}'
set -a
. "$BLOOM_HOME/environment"
set +a
[ -d "$BLOOM_HOME/venv" ] && export PATH="$BLOOM_HOME/venv/bin:$PATH"
{command}
{end}
cat >whole.sh <<'{end}'
bash "$BLOOM_HOME/job.sh"
sleep {idle}
# Without our folder, the machine is no longer ours.
[ -e "$BLOOM_HOME/started" ] && shutdown -P now
{end}

in_background() {{  # name, seconds to wait, program…
  name=$1 wait=$2
  shift 2
  if [ -d /run/systemd/system ] && command -v systemd-run >/dev/null; then
    if [ "$wait" = 0 ]; then
      systemd-run --unit="$name" --collect --setenv=BLOOM_HOME="$base" --setenv=HOME="$HOME" "$@" && return
    else
      systemd-run --unit="$name" --on-active="$wait" "$@" && return
    fi
  fi
  nohup sh -c 'sleep "$1"; shift; exec "$@"' sh "$wait" "$@" >>"$base/$name.log" 2>&1 </dev/null &
}}
{switch}
# The agent needs Python 3.11; the job may use the older one that came with the machine's libraries.
if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' &&
  ! command -v python3.11 python3.12 python3.13 >/dev/null; then
  apt-get update -q && apt-get install -q -y python3.11
fi
{packages}
in_background bloom-job 0 bash "$base/whole.sh"
"""

_PACKAGES = """\
# If a package cannot be installed, the job fails without it and says so in its output.
own_python() {{ python3 -m venv --system-site-packages venv; }}
own_python || {{ apt-get update -q && apt-get install -q -y python3-venv && own_python; }}
venv/bin/python -m pip install --quiet --no-input -- {packages}
"""

_SWITCH = """\
# If the machine is never terminated, switch it off, so that at least the job stops.
in_background bloom-off {seconds} shutdown -P now
"""


def user_data_script(launch: Launch, *, idle_seconds: int = _IDLE_SECONDS) -> str:
    """For a shell, as root, on a fresh machine; doing it again changes nothing."""
    for text in (launch.command, launch.start_address):
        if _END in text or "\0" in text:
            raise InputError("invalid_argument", "the command and the address of a launch must be plain text")
    if "\n" in launch.start_address:
        raise InputError("invalid_argument", "the address of a launch must be one line")
    longest = launch.longest_seconds
    return _SCRIPT.format(
        end=_END,
        address=shlex.quote(launch.start_address),
        command=launch.command,
        idle=idle_seconds,
        packages=_PACKAGES.format(packages=shlex.join(launch.packages)) if launch.packages else "",
        switch=_SWITCH.format(seconds=math.ceil(longest)) if longest is not None else "",
    )
