"""`python bloom-agent.pyz RUN_DIR`: run the job in a run directory and record how it ended.

`python bloom-agent.pyz remote FOLDER` does that on a rented machine, through a bucket (docs/storage.md).
"""

import argparse
import os
import sys
from pathlib import Path

from gpubloom.agent.attempt import announce_to, run_attempt
from gpubloom.agent.detach import detach, leave_terminal
from gpubloom.agent.training import execute


def main() -> None:
    if sys.argv[1:2] == ["remote"]:
        from gpubloom.agent.remote.uploader import main as remote

        sys.exit(remote(sys.argv[2:]))
    parser = argparse.ArgumentParser(prog="bloom-agent", description=__doc__)
    parser.add_argument(
        "run_dir", type=Path, help="the run directory; the job is described in its file agent/job.json"
    )
    parser.add_argument("--detach", action="store_true", help="continue in the background")
    parser.add_argument(
        "--start", default="plain start", help="how the agent was started; only written to the log"
    )
    parser.add_argument(
        "--device", type=int, action="append", default=[], help="file descriptor of a device lock"
    )
    parser.add_argument(
        "--announce", type=int, help="file descriptor to which the agent writes whether the attempt started"
    )
    options = parser.parse_args()
    run_dir = options.run_dir.absolute()
    passed = [*options.device, *([] if options.announce is None else [options.announce])]
    for descriptor in passed:
        os.set_inheritable(descriptor, False)
    if options.detach:
        if os.fork() != 0:
            os._exit(0)
        detach(run_dir)
    else:
        leave_terminal()
    announce = announce_to(options.announce)
    sys.exit(
        run_attempt(run_dir, start=options.start, devices=options.device, announce=announce, become=execute)
    )


if __name__ == "__main__":
    main()
