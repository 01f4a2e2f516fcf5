"""Sends a run to a server while it happens: `Reporter(project=…)` with BLOOM_SERVER and BLOOM_TOKEN.

A thread looks at the run directory every two seconds and posts what is new, by the rules of directory sync
(`traincard.sync`). It never waits for the training, and the training never waits for it, except at the end,
within a limit. The run directory stays what counts: a batch lies on disk before it is sent, so a sender that
was killed, or that lost its answer, sends the same bytes again, and the server counts them once. What could
not be sent in time is sent by the next attempt, or by `bloom runs send`.

Standard library only. Off inside a job, whose run directory the server reads itself.
"""

import base64
import contextlib
import http.client
import json
import logging
import socket
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from gpubloom.errors import shell_word
from gpubloom.traincard.atomic_write import read_json_object, replace_file
from gpubloom.traincard.layout import find_job_dir
from gpubloom.traincard.retry import RetryPolicy, is_host_not_found
from gpubloom.traincard.sync.accepted import SENT_RUN_PATHS
from gpubloom.traincard.sync.delta import DeltaBuilder
from gpubloom.traincard.sync.files import FileState, list_files
from gpubloom.traincard.sync.upload_batch import UploadBatch

logger = logging.getLogger("gpubloom.traincard")

FOLDER = ".sender"
_EVERY_SECONDS = 2.0
_LONGEST_PAUSE_SECONDS = 30.0
_CLOSE_SECONDS = 30.0
_WHOLE_RUN_SECONDS = 3600.0
# A person waits for a server that is away, and would rather know.
_OUTAGE_SECONDS = 60.0
_REQUEST_SECONDS = 30.0
_PART_BYTES = 1 << 20
# A batch with less than this had room for all that was new: what came meanwhile can wait for the next turn.
_HAD_ROOM_BYTES = 64 << 10
_LONGEST_ANSWER = 1 << 20
_LARGEST_CONFIG_BYTES = 256 << 10
# Answers that say "later" rather than "no".
_LATER = {408, 409, 425, 429}
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}


class SendRefusedError(Exception):
    """The server does not take this run. The message says why; trying again would not help."""


class _Unavailable(Exception):
    """The server does not answer, or asks to try later."""


class _HostNotFound(_Unavailable):
    """The server cannot answer: no host has its name."""


class _Connection:
    """One connection to a server, kept open between requests: a new one costs more than what is sent.

    Goes through the proxy of the environment where there is one. Redirects are not followed: one would carry
    the token to another address.
    """

    def __init__(self, address: urllib.parse.SplitResult) -> None:
        self._address = address
        self._open: http.client.HTTPConnection | None = None

    def request(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Status and body of the answer. OSError, HTTPException: there is none."""
        while True:
            is_new = self._open is None
            connection = self._open = self._open or self._connect()
            try:
                connection.request(method, self._address.path + path, body, dict(headers))
                answer = connection.getresponse()
                content = answer.read(_LONGEST_ANSWER)
            except (OSError, http.client.HTTPException) as problem:
                self.close()
                if is_new or isinstance(problem, TimeoutError):
                    raise
                # The server closed it meanwhile. What arrived all the same counts once.
                continue
            if not answer.isclosed():
                self.close()
            return answer.status, content

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._address.hostname or "", self._address.port
        if self._address.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=_REQUEST_SECONDS)
        proxy = urllib.request.getproxies().get("https")
        if not proxy or urllib.request.proxy_bypass(host):
            return http.client.HTTPSConnection(host, port, timeout=_REQUEST_SECONDS)
        through = urllib.parse.urlsplit(proxy if "://" in proxy else f"http://{proxy}")
        connection = http.client.HTTPSConnection(
            through.hostname or "", through.port or 80, timeout=_REQUEST_SECONDS
        )
        headers = {}
        if through.username is not None:
            user = f"{urllib.parse.unquote(through.username)}:{urllib.parse.unquote(through.password or '')}"
            headers["Proxy-Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"
        connection.set_tunnel(host, port or 443, headers)
        return connection

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


def start_sender(run_dir: Path, project: str | None, environment: Mapping[str, str]) -> "RunSender | None":
    """The sender that the environment asks for; None: it asks for none, or names no usable server."""
    server, token = environment.get("BLOOM_SERVER"), environment.get("BLOOM_TOKEN")
    project = project or environment.get("BLOOM_PROJECT")
    if not server or not project or find_job_dir(environment) is not None:
        return None
    if not token:
        logger.warning("This run is not sent to %s: set BLOOM_TOKEN to an API token of the server.", server)
        return None
    try:
        sender = RunSender(run_dir, server, token, project)
    except SendRefusedError as problem:
        logger.warning("This run is not sent: %s", problem)
        return None
    sender.start()
    return sender


class RunSender(threading.Thread):
    """One run directory and one server. `start` begins to send, `finish` sends the rest.

    `outage_seconds`: how long a server may be away; by default as long as the run lasts.
    """

    def __init__(
        self,
        run_dir: Path,
        server: str,
        token: str,
        project: str,
        *,
        every: float = _EVERY_SECONDS,
        tell: Callable[[str], None] | None = None,
        outage_seconds: float | None = None,
    ) -> None:
        super().__init__(name="run-sender", daemon=True)
        address = urllib.parse.urlsplit(server.rstrip("/"))
        if address.scheme not in {"http", "https"} or not address.hostname:
            raise SendRefusedError(f"BLOOM_SERVER must be an https address, not {server!r}.")
        if address.scheme == "http" and address.hostname not in _LOOPBACK:
            raise SendRefusedError(
                f"{server} does not use https, so the token would travel in the clear. Use an https address."
            )
        self._run_dir, self._server, self._token = run_dir, server.rstrip("/"), token
        self._project, self._name = project, run_dir.name
        self._every, self._tell = every, tell or _tell
        self._outage_seconds = outage_seconds
        self._folder = run_dir / FOLDER
        self._builder = DeltaBuilder(run_dir, _PART_BYTES, listing=_reported)
        self._connection = _Connection(urllib.parse.urlsplit(self._server))
        self._after: dict[str, Any] | None = None
        self._wake = threading.Event()
        self._ending = False
        self._is_registered = False
        self._failures = 0
        self._last_success = time.monotonic()
        self.problem: str | None = None
        """Why nothing is sent any more; None while the run is sent."""
        kept = self._read_state()
        self.run_id: str = kept["id"]
        self._next, self._state = int(kept["next"]), kept["state"]

    def _read_state(self) -> dict[str, Any]:
        first = {"server": self._server, "id": str(uuid4()), "next": 1, "state": None}
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(ValueError):
            kept = read_json_object(self._folder / "state.json")
            # Another server has another copy of the run.
            if kept is not None and kept.get("server") == self._server:
                return kept
        self._forget_batch()
        replace_file(self._folder / "state.json", json.dumps(first))
        return first

    def run(self) -> None:
        try:
            self._send_until_the_end()
        finally:
            self._connection.close()

    def _send_until_the_end(self) -> None:
        while self.problem is None:
            ending = self._ending
            if self.turn(final=ending) and ending:
                return
            pause = RetryPolicy(self._every, _LONGEST_PAUSE_SECONDS).pause_after(1 + self._failures)
            self._wake.wait(min(pause, 1.0) if ending else pause)
            self._wake.clear()

    def flush(self, seconds: float) -> None:
        """Send what there is, within a limit: the machine is about to go away."""
        self._ending = True
        self._wake.set()
        self.join(seconds)

    def finish(self, seconds: float = _CLOSE_SECONDS) -> bool:
        """Send the rest; returns whether all of it arrived."""
        self.flush(seconds)
        if not self.is_alive() and self.problem is None:
            return True
        reason = self.problem or f"{self._server} did not take it within {seconds:g} seconds"
        logger.warning(
            "Not all of this run was sent: %s. Send the rest: bloom runs send %s --project %s",
            reason, shell_word(self._run_dir), shell_word(self._project),
        )  # fmt: skip
        return False

    def turn(self, *, final: bool) -> bool:
        """Send all that is new; False when the server could not be reached. Never raises."""
        try:
            if not self._is_registered:
                self._register()
            if self._batch.exists():
                self._send()
            while (size := self._pack(final=final)) is not None:
                self._send()
                if size < _HAD_ROOM_BYTES and not final:
                    break
        except SendRefusedError as problem:
            self.problem = str(problem)
            if self._outage_seconds is None:
                logger.warning("This run is no longer sent to %s: %s", self._server, problem)
            return False
        except (_Unavailable, OSError, ValueError) as problem:
            self._wait_for_server(problem)
            return False
        if self._failures:
            logger.info("Sending the run works again.")
        self._failures = 0
        return True

    def _wait_for_server(self, problem: Exception) -> None:
        limit, away = self._outage_seconds, time.monotonic() - self._last_success
        self._is_registered = False
        if limit is not None and (isinstance(problem, _HostNotFound) or away > limit):
            self.problem = str(problem)
        elif self._failures == 0:
            until = (
                "The run continues. Trying again" if limit is None else f"Trying again for up to {limit:g} s"
            )
            logger.warning("Could not send the run: %s. %s.", problem, until)
        self._failures += 1

    @property
    def _batch(self) -> Path:
        return self._folder / "batch"

    def _forget_batch(self) -> None:
        self._after = None
        self._batch.unlink(missing_ok=True)
        (self._folder / "after.json").unlink(missing_ok=True)

    def _register(self) -> None:
        """Tell the server of the run, and learn which batch it expects."""
        body = {"id": self.run_id, "project": self._project, "name": self._name, "host": socket.gethostname()}
        if (config := self._config()) is not None:
            body["config"] = config
        answer = json.loads(
            self._request("PUT", "/api/sent-runs", json.dumps(body).encode(), "application/json")
        )
        expected = int(answer["next"])
        if self._state is None:
            self._tell(f"Sending this run to {self._server}/jobs/{self.run_id}")
        if expected == self._next + 1 and self._batch.exists():
            # It arrived, but the answer was lost.
            self._commit()
        elif expected != self._next or self._state is None:
            # One of the two has forgotten what was sent: everything is sent again, over what is there.
            self._forget_batch()
            self._next, self._state = expected, DeltaBuilder.first_state(self._run_dir, {})
            self._keep()
        self._is_registered = True

    def _config(self) -> Any:
        path = self._run_dir / "config.json"
        with contextlib.suppress(OSError, ValueError):
            if path.is_file() and path.stat().st_size <= _LARGEST_CONFIG_BYTES:
                return read_json_object(path)
        return None

    def _pack(self, *, final: bool) -> int | None:
        """Store the next batch; returns the size of its content, None when nothing is new."""
        news = self._builder.pack(self._state, large=True, final=final)
        if news is None:
            return None
        entries, content, after = news
        batch = UploadBatch(self.run_id, 1, self._next, self._every, entries, content)
        replace_file(self._folder / "after.json", json.dumps(after))
        temporary = self._folder / ".batch.tmp"
        temporary.write_bytes(batch.to_bytes())
        temporary.replace(self._batch)
        self._after = after
        return len(content)

    def _send(self) -> None:
        self._request("POST", "/api/sent-runs/batches", self._batch.read_bytes(), "application/octet-stream")
        self._commit()

    def _commit(self) -> None:
        """The batch arrived: its state holds from now on."""
        # After a restart only the file knows it.
        after = self._after if self._after is not None else read_json_object(self._folder / "after.json")
        self._next, self._state, self._after = (
            self._next + 1,
            after if after is not None else self._state,
            None,
        )
        self._keep()
        self._forget_batch()

    def _keep(self) -> None:
        content = {"server": self._server, "id": self.run_id, "next": self._next, "state": self._state}
        replace_file(self._folder / "state.json", json.dumps(content))

    def _request(self, method: str, path: str, body: bytes, kind: str) -> bytes:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        try:
            status, content = self._connection.request(method, path, body, headers)
        except (OSError, http.client.HTTPException) as problem:
            if is_host_not_found(problem):
                raise _HostNotFound(f"no host has the name in {self._server}. Check BLOOM_SERVER") from None
            reason = getattr(problem, "strerror", None) or type(problem).__name__
            raise _Unavailable(f"{self._server} cannot be reached ({reason})") from None
        if 200 <= status < 300:
            self._last_success = time.monotonic()
            return content
        sentence = _sentence(status, content)
        if status >= 500 or status in _LATER:
            raise _Unavailable(sentence)
        raise SendRefusedError(sentence)


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _reported(run_dir: Path) -> dict[str, FileState]:
    """What a Reporter writes. Checkpoints and other files of the training stay where they are."""
    files = list_files(run_dir, ("traincard", "logs"))
    return {name: seen for name, seen in files.items() if name in SENT_RUN_PATHS}


def _sentence(status: int, content: bytes) -> str:
    try:
        detail = json.loads(content).get("detail")
    except (ValueError, AttributeError, RecursionError):
        detail = None
    return f"the server answered {status}: {detail or 'no reason given'}".rstrip(".")


def send_run(run_dir: Path, server: str, token: str, project: str) -> str:
    """Send all of a run directory; returns the id of the run. SendRefusedError: it cannot be sent."""
    sender = RunSender(
        run_dir, server, token, project, every=1.0, tell=lambda line: None, outage_seconds=_OUTAGE_SECONDS
    )
    sender.start()
    sender.flush(_WHOLE_RUN_SECONDS)
    if sender.problem is not None:
        raise SendRefusedError(sender.problem)
    if sender.is_alive():
        raise SendRefusedError(
            f"{server} took only a part of it within {_WHOLE_RUN_SECONDS:g} s. Run the same command again to "
            "send the rest"
        )
    return sender.run_id


__all__ = ["FOLDER", "RunSender", "SendRefusedError", "send_run", "start_sender"]
