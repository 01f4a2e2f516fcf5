"""Runs from anywhere: a Reporter sends its run to a server that is killed, over a link that is cut."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gpubloom.traincard import Reporter
from gpubloom.traincard import sender as sender_module
from gpubloom.traincard.sender import RunSender, SendRefusedError, send_run, start_sender
from gpubloom.traincard.sync.upload_batch import UploadBatch
from tests.live_server import LiveServer, live_server
from tests.traincard.sending import SCRIPT, add_token, arrived, events_of, stored
from tests.waiting import wait_until


class CuttingProxy:
    """Passes connections on to an address that may change; `cut` breaks all of them, until `mend`."""

    def __init__(self) -> None:
        self.target: tuple[str, int] | None = None
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.is_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def cut(self) -> None:
        self.is_cut = True
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def mend(self) -> None:
        self.is_cut = False

    def close(self) -> None:
        self.cut()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            if self.is_cut or self.target is None:
                near.close()
                continue
            try:
                far = socket.create_connection(self.target, timeout=5)
            except OSError:
                near.close()
                continue
            self._open += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    @staticmethod
    def _pass(one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while piece := one.recv(65_536):
                other.sendall(piece)
        for each in (one, other):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        # The thread of the other direction closes the other one.
        one.close()


def _point(proxy: CuttingProxy, server: LiveServer) -> None:
    host, port = server.address.removeprefix("http://").split(":")
    proxy.target = (host, int(port))


@pytest.mark.long
def test_a_run_arrives_whole_although_the_server_is_killed_three_times_and_the_link_is_cut(
    tmp_path: Path,
) -> None:
    home, run_dir, proxy = tmp_path / "home", tmp_path / "run", CuttingProxy()
    stop = tmp_path / "stop"
    token, process = "", None
    for start in range(4):
        with live_server(home) as server:
            _point(proxy, server)
            if start == 0:
                token = add_token(server)
                environment = {**os.environ, "BLOOM_SERVER": proxy.address, "BLOOM_TOKEN": token}
                environment.pop("BLOOM_JOB_ID", None)
                process = subprocess.Popen(
                    [sys.executable, "-c", SCRIPT, str(run_dir), str(stop)], env=environment
                )
            assert process is not None
            before = sum(file.stat().st_size for file in (home / "runs").rglob("*") if file.is_file())
            if start < 3:
                # Something new arrived, then the link is cut and the server is killed in the middle of it.
                wait_until(lambda before=before: arrived(home) > before)
                proxy.cut()
                server.process.send_signal(signal.SIGKILL)
                server.process.wait()
                proxy.mend()
            else:
                stop.touch()
                assert process.wait(120) == 0
    state = json.loads((run_dir / ".sender/state.json").read_text())
    copy = home / "runs" / state["id"]
    assert events_of(copy) == events_of(run_dir)
    steps = sum(kind == "metric" for _, _, kind, _ in events_of(copy))
    proxy.close()
    with live_server(home) as server:
        row, points = stored(server, token, state["id"])
    assert (row["status"], row["project_name"]) == ("completed", "Sweep")
    # Each point once, in order.
    assert 100 < steps == len(points) < 5_000
    assert points == [(step, pytest.approx(1 / step)) for step in range(1, steps + 1)]


def test_a_run_is_sent_only_when_asked_for_and_never_in_a_job(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = {"BLOOM_SERVER": "https://bloom.example", "BLOOM_TOKEN": "bloom_x"}
    assert start_sender(tmp_path, None, server) is None
    assert start_sender(tmp_path, "P", {}) is None
    job = {**server, "BLOOM_JOB_ID": "1", "BLOOM_RUN_DIR": str(tmp_path)}
    assert start_sender(tmp_path, "P", job) is None
    assert start_sender(tmp_path, "P", {"BLOOM_SERVER": "https://bloom.example"}) is None
    assert "BLOOM_TOKEN" in caplog.text
    assert start_sender(tmp_path, "P", {**server, "BLOOM_SERVER": "http://bloom.example"}) is None
    assert "https" in caplog.text
    assert not (tmp_path / ".sender").exists()


def test_a_server_that_is_away_neither_stops_nor_slows_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    sender = RunSender(tmp_path, f"http://127.0.0.1:{port}", "bloom_x", "P", every=0.05)
    sender.start()
    with Reporter(tmp_path, telemetry_seconds=0) as reporter:
        reporter.metrics({"loss": 1.0}, step=1)
    assert sender.finish(0.5) is False
    assert "bloom runs send" in caplog.text


@pytest.fixture
def ended_run(tmp_path: Path) -> Path:
    with Reporter(tmp_path / "run", telemetry_seconds=0) as reporter:
        reporter.metrics({"loss": 1.0}, step=1)
    return tmp_path / "run"


def test_a_host_that_does_not_exist_is_not_waited_for_by_a_person(
    ended_run: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*asked: object, **more: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fails)
    # Were it waited for, this test would run out of time.
    monkeypatch.setattr(sender_module, "_OUTAGE_SECONDS", 3600.0)
    with pytest.raises(SendRefusedError, match="no-such-host"):
        send_run(ended_run, "https://no-such-host.example", "bloom_x", "P")
    assert caplog.text == ""


def test_a_server_that_is_away_is_waited_for_so_long_as_is_said(
    ended_run: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sender_module, "_OUTAGE_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(SendRefusedError, match="Connection refused"):
        send_run(ended_run, f"http://127.0.0.1:{port}", "bloom_x", "P")
    (said,) = caplog.messages
    assert "Trying again for up to 0.5 s" in said


@pytest.mark.long
def test_a_run_that_is_there_already_is_sent_and_a_wrong_token_is_said(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with Reporter(run_dir, telemetry_seconds=0) as reporter:
        reporter.metrics({"loss": 1.0}, step=1)
    (run_dir / "checkpoints").mkdir()
    (run_dir / "checkpoints/weights.bin").write_bytes(b"x" * 1000)
    with live_server(tmp_path / "home") as server:
        token = add_token(server)
        with pytest.raises(SendRefusedError, match="401"):
            send_run(run_dir, server.address, "bloom_wrong", "P")
        run_id = send_run(run_dir, server.address, token, "P")
        assert send_run(run_dir, server.address, token, "P") == run_id
        copy = server.home / "runs" / run_id
        assert events_of(copy) == events_of(run_dir)
        assert not (copy / "checkpoints").exists()
        # A sender that lost its memory begins anew, over what is there.
        state = json.loads((run_dir / ".sender/state.json").read_text())
        (run_dir / ".sender/state.json").write_text(json.dumps({**state, "next": 1, "state": None}))
        assert send_run(run_dir, server.address, token, "P") == run_id
        assert events_of(copy) == events_of(run_dir)


class _Receiver(BaseHTTPRequestHandler):
    """Takes every batch. `addresses`: of its connections; `closes`: them after every answer, unsaid."""

    protocol_version = "HTTP/1.1"
    numbers: list[int]
    addresses: list[tuple[str, int]]
    closes = False

    def setup(self) -> None:
        super().setup()
        self.addresses.append(self.client_address)

    def do_PUT(self) -> None:
        self._answer(json.loads(self._body())["id"], 1 + len(self.numbers))

    def do_POST(self) -> None:
        batch = UploadBatch.from_bytes(self._body())
        self.numbers.append(batch.number)
        self._answer(batch.job_id, batch.number + 1)

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers["Content-Length"]))

    def _answer(self, run_id: str, following: int) -> None:
        content = json.dumps({"id": run_id, "project_id": run_id, "next": following}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        self.close_connection = self.closes

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def _receiver() -> Iterator[tuple[str, type[_Receiver]]]:
    class Receiver(_Receiver):
        numbers: list[int] = []  # noqa: RUF012 - of this class alone
        addresses: list[tuple[str, int]] = []  # noqa: RUF012

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", Receiver
        server.shutdown()


def test_batches_share_a_connection_and_one_that_the_server_closed_is_replaced(tmp_path: Path) -> None:
    with _receiver() as (address, receiver), Reporter(tmp_path / "run", telemetry_seconds=0) as reporter:
        sender = RunSender(tmp_path / "run", address, "bloom_x", "P", tell=lambda line: None)
        for step in range(3):
            reporter.metric("loss", 1.0, step)
            reporter.flush()
            assert sender.turn(final=False)
        assert (receiver.numbers, len(receiver.addresses)) == ([1, 2, 3], 1)
        receiver.closes = True
        for step in range(3, 6):
            reporter.metric("loss", 1.0, step)
            reporter.flush()
            assert sender.turn(final=False)
        # The first of these still came by the open connection.
        assert (receiver.numbers, len(receiver.addresses)) == ([1, 2, 3, 4, 5, 6], 3)
        sender.start()
        assert sender.finish()
