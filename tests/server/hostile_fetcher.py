"""A download from a hub that was taken over: `python -m` this instead of the server's own.

By what the hub sends first, or, for a dataset, by the files that are joined when all of them have arrived.
"""

import json
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from gpubloom.hub import fetching
from gpubloom.hub.problems import HubProblem
from gpubloom.hub.repositories import hub_endpoint
from gpubloom.server.storage import fetch_process
from tests.server.hostile_parser import try_all


def take_over_download(_: str, target: Path, **__: Any) -> NoReturn:
    own = target.with_name("own")
    own.write_text("x")
    raise HubProblem("taken_over", try_all(own))


def take_over_join(parts: Sequence[Path], *_: Any) -> NoReturn:
    host, port = hub_endpoint().rpartition("/")[2].split(":")
    try:
        socket.create_connection((host, int(port)), 5)
    except OSError as problem:
        raise HubProblem("taken_over", json.dumps({"hub": type(problem).__name__})) from None
    raise HubProblem("taken_over", json.dumps({"hub": "done"}))


if __name__ == "__main__":
    fetch_process.fetch_model = take_over_download
    fetching._join = take_over_join
    fetch_process.main()
