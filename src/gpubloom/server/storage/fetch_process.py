"""`python -m` this with a request on the input: fetches a model or a dataset from a hub.

In a process of its own, so that it can be ended in the middle and holds one person's token only. Answers are
lines of JSON: {"received": …, "size": …}, {"fetched": …} or {"refused": "a sentence"}. What had come
before it was ended stays under a hidden name, and the next try goes on there. The process can write to the
folder `staging` of its request alone; a model is then in its folder `FETCHED`.
"""

import json
import os
import shutil
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpubloom.datasets import NotADataset
from gpubloom.egress.policy import VARIABLE
from gpubloom.hub.fetching import fetch_dataset, fetch_model
from gpubloom.hub.problems import HubProblem
from gpubloom.hub.repositories import ANONYMOUS, hub_endpoint
from gpubloom.sandbox.landlock import Limits, close_network, confine_reader

FETCHED = "fetched"
# Joining the files of a dataset may write them in a longer form.
_SPARE_BYTES = 1 << 30
_CPU_SECONDS = 24 * 3600
_DNS, _HTTP, _TLS = 53, 80, 443
_TELL_EVERY_SECONDS = 0.5
# The texts of huggingface_hub are for a terminal; these replace them in the web app.
_WEB_WORDING = {
    "set HF_TOKEN to": "under Settings, add",
    "set HF_TOKEN": "store it under Settings",
}


def _send_line(**fields: Any) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


class _Telling:
    """Reports the progress, and stops a download that would become too large."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._told = 0.0

    def __call__(self, received: int, size: int) -> None:
        if size > self._most:
            raise HubProblem(
                "too_large",
                f"The download is {size / 1e9:,.1f} GB, but you have only "
                f"{max(0, self._most) / 1e9:,.1f} GB of storage left. Delete a dataset or a model, or "
                "ask the operator to raise BLOOM_USER_QUOTA_GB.",
            )
        if time.monotonic() - self._told > _TELL_EVERY_SECONDS:
            self._told = time.monotonic()
            _send_line(received=received, size=size)


def _fetch_model(request: dict[str, Any]) -> dict[str, Any]:
    target = Path(request["staging"]) / FETCHED
    # Whole, but the process ended before it could say so.
    shutil.rmtree(target, ignore_errors=True)
    found = fetch_model(
        request["repository"],
        target,
        revision=request["revision"],
        token=request["token"] or ANONYMOUS,
        progress=_Telling(request["most_bytes"]),
    )
    return {"revision": found.revision, "size": found.bytes}


def _fetch_dataset(request: dict[str, Any]) -> dict[str, Any]:
    folder = Path(request["staging"])
    target = folder / FETCHED
    shutil.rmtree(target, ignore_errors=True)
    found = fetch_dataset(
        request["repository"],
        target,
        config=request["config"],
        split=request["split"],
        revision=request["revision"],
        token=request["token"] or ANONYMOUS,
        progress=_Telling(request["most_bytes"]),
        # What strangers wrote is read without a network.
        before_joining=lambda: close_network(request["sandbox"]),
    )
    found.path.replace(folder / f"data{found.path.suffix}")
    shutil.rmtree(target, ignore_errors=True)
    return {
        "filename": found.path.name,
        "size": (folder / f"data{found.path.suffix}").stat().st_size,
        "config": found.config,
        "split": found.split,
        "revision": found.revision,
        "notes": list(found.notes),
    }


def _confine(request: dict[str, Any]) -> None:
    """From here on, this process writes to its target and talks to the hub.

    The kernel knows ports, not names: `hub.repositories` checks whom the connections go to.
    """
    staging = Path(request["staging"])
    staging.mkdir(parents=True, exist_ok=True, mode=0o700)
    largest = max(0, request["most_bytes"]) + _SPARE_BYTES
    limits = Limits(_CPU_SECONDS, file_bytes=largest, nice=True)
    confine_reader(
        [], [staging], limits=limits, policy=request["sandbox"], network=True, ports=_ports(os.environ)
    )


def _ports(environment: Mapping[str, str]) -> set[int]:
    """The ports of the hub, of TLS, of a proxy and of name servers. None: the operator allows more addresses,
    whose ports are not known."""
    if environment.get(VARIABLE):
        return set()
    named = {_DNS, _TLS}
    for address in (hub_endpoint(), *urllib.request.getproxies().values()):
        parts = urllib.parse.urlsplit(address if "://" in address else f"http://{address}")
        named.add(parts.port or (_TLS if parts.scheme == "https" else _HTTP))
    return named


def main() -> None:
    """One request, one answer."""
    request = json.load(sys.stdin)
    _confine(request)
    fetch = {"model": _fetch_model, "dataset": _fetch_dataset}[request["kind"]]
    try:
        _send_line(fetched=fetch(request))
    except (HubProblem, NotADataset) as problem:
        sentence = str(problem)
        for written, meant in _WEB_WORDING.items():
            sentence = sentence.replace(written, meant)
        # Paths of this machine are nobody's business.
        sentence = sentence.replace(request["staging"], "the server's disk")
        _send_line(refused=sentence[:2_000])
    except MemoryError:
        _send_line(refused="The server does not have enough memory to join the files of this dataset.")


if __name__ == "__main__":
    main()
