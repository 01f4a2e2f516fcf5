"""The server as viewers and strangers meet it: a real process, real sockets."""

import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from starlette.requests import HTTPConnection

from gpubloom.metrics_server.access_control import Guard, Rejected
from gpubloom.metrics_server.process import ServerConfig, listen
from gpubloom.traincard import ControlFile
from tests.errors import raises
from tests.metrics_server.conftest import TIMEOUT, Served, Viewer

pytestmark = pytest.mark.xdist_group("metrics server")


@pytest.fixture
def view(served: Served) -> Iterator[Callable[..., Viewer]]:
    opened: list[Viewer] = []

    def start(**headers: str) -> Viewer:
        opened.append(Viewer(served.host, **headers))
        return opened[-1]

    yield start
    for viewer in opened:
        viewer.close()


def test_a_viewer_gets_the_whole_run_and_then_what_is_new(
    served: Served, view: Callable[..., Viewer]
) -> None:
    viewer = view()
    first = viewer.message()
    assert first["type"] == "run"
    lines = {metric["name"]: metric["lines"][0]["x"] for metric in first["run"]["metrics"]}
    before = lines["train/loss"][-1]
    assert lines["train/loss"][:3] == [1, 2, 3]
    served.reporter.metrics({"train/loss": 0.5}, step=before + 1)
    served.reporter.log("another line")
    told = viewer.message()
    while not told["points"]:
        told = viewer.message()
    (point,) = told["points"]
    assert (point["name"], point["x"][-1], point["y"][-1]) == ("train/loss", before + 1, 0.5)
    assert len(point["x"]) <= 3
    assert told["sections"]["status"]["step"] == before + 1


def test_the_json_api_tells_the_run_and_its_points(served: Served) -> None:
    status, run = served.ask("/api/run")
    assert (status, run["name"], run["status"]["status"]) == (200, "run", "running")
    assert run["control"]["want"] == "run"
    _, everything = served.ask("/api/metrics")
    assert everything["complete"]
    assert {point["name"] for point in everything["points"]} == {"train/loss", "train/learning_rate"}
    _, more = served.ask(f"/api/metrics?after={everything['revision']}")
    assert not more["complete"]
    assert served.ask("/api/metrics?after=-1")[0] == 422


def test_looking_changes_nothing_in_the_run(served: Served, view: Callable[..., Viewer]) -> None:
    before = {path: path.stat().st_mtime_ns for path in served.run_dir.rglob("*") if "lock" not in path.name}
    view().message()
    served.ask("/api/run")
    served.ask("/")
    control = served.run_dir / "traincard" / "control.json"
    assert control in before or not control.exists()
    assert set(before) == {path for path in served.run_dir.rglob("*") if "lock" not in path.name}


def test_whatever_changes_the_run_takes_the_token(served: Served) -> None:
    control = ControlFile(served.run_dir)
    before = control.read().version
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": served.token[:-1]}):
        status, answer = served.ask("/api/control", {"want": "pause"}, **headers)
        assert status == 401
        assert "token that was printed" in answer["detail"]
    assert control.read().version == before
    assert served.send_command({"want": "pause"})[0] == 200
    assert control.read().want == "pause"
    status, answer = served.send_command({"want": "run", "save": True, "set": {"learning_rate": 5e-4}})
    assert (status, answer["want"], answer["set"]) == (200, "run", {"learning_rate": 5e-4})
    assert control.read().save == 1
    assert served.ask("/api/run")[1]["control"]["set"] == {"learning_rate": 5e-4}


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "http://localhost"])
def test_a_page_of_another_origin_may_neither_read_nor_control(
    served: Served, view: Callable[..., Viewer], origin: str
) -> None:
    before = ControlFile(served.run_dir).read().version
    assert served.send_command({"want": "pause"}, Origin=origin)[0] == 403
    assert served.ask("/api/run", Origin=origin)[0] == 403
    assert view(Origin=origin).status == 403
    assert ControlFile(served.run_dir).read().version == before


def test_its_own_page_may_look(served: Served, view: Callable[..., Viewer]) -> None:
    assert view(Origin=f"http://{served.host}").status == 101


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "192.168.0.7:8081", "", "localhost; x", "local host"]
)
def test_a_name_that_is_not_ours_is_refused(served: Served, view: Callable[..., Viewer], host: str) -> None:
    status, answer = served.ask("/", Host=host)
    assert status == 421
    assert answer["code"] == "host_not_allowed"
    assert view(Host=host).status == 421


def test_a_forwarded_port_is_still_ours(served: Served) -> None:
    assert served.ask("/api/run", Host="localhost:9000")[0] == 200


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (b"{", 400),
        (b"[]", 400),
        ({}, 400),
        ({"want": "run", "more": 1}, 400),
        ({"want": "explode"}, 422),
        ({"want": ["run"]}, 422),
        ({"save": 1}, 422),
        ({"set": []}, 422),
        ({"set": {"learning_rate": [1]}}, 422),
        (b'{"set": {"learning_rate": NaN}}', 400),
        (b'{"set": {"learning_rate": 1e999}}', 400),
        (b" " * 70_000, 413),
    ],
)
def test_a_command_that_makes_no_sense_changes_nothing(served: Served, command: object, status: int) -> None:
    before = ControlFile(served.run_dir).read().version
    answered, answer = served.send_command(command)
    assert answered == status
    assert answer["detail"].endswith(".")
    assert ControlFile(served.run_dir).read().version == before


def test_requests_that_are_none_get_an_answer_and_the_server_lives(served: Served) -> None:
    name, _, port = served.host.partition(":")
    for said, expected in (
        (b"hello\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 20_000 + b"\r\n\r\n", b"400"),
        (b"GET /ws HTTP/1.1\r\nHost: localhost\r\n\r\n", b"426"),
    ):
        with socket.create_connection((name, int(port)), timeout=TIMEOUT) as connection:
            connection.sendall(said)
            assert connection.recv(100).split()[1] == expected
    assert served.ask("/nothing")[0] == 404
    assert served.ask("/api/control")[0] == 405
    assert served.ask("/api/run")[0] == 200


def test_a_viewer_that_breaks_the_protocol_is_let_go(served: Served, view: Callable[..., Viewer]) -> None:
    viewer = view()
    viewer.message()
    viewer.say(0x9, b"still there?")
    kind, content = viewer.frame()
    while kind == 1:
        kind, content = viewer.frame()
    assert (kind, content) == (0xA, b"still there?")
    viewer.say(0x1, b"unmasked", masked=False)
    kind, content = viewer.frame()
    while kind == 1:
        kind, content = viewer.frame()
    assert (kind, struct.unpack("!H", content[:2])) == (0x8, (1002,))
    assert viewer.is_over()
    assert served.ask("/api/run")[0] == 200


def _request(**headers: str) -> HTTPConnection:
    sent = [(name.encode(), value.encode()) for name, value in headers.items()]
    return HTTPConnection({"type": "http", "headers": sent})


def test_on_the_network_looking_takes_the_token_too() -> None:
    guard = Guard("secret", "192.168.0.7")
    host = "192.168.0.7:8081"
    guard.check_origin(_request(host=host))
    with raises(Rejected, code="host_not_allowed"):
        guard.check_origin(_request(host="rebound.example"))
    with raises(Rejected, code="invalid_api_token"):
        guard.check_reading(_request(host=host))
    guard.check_reading(_request(host=host, authorization="Bearer secret"))
    guard.check_reading(_request(host=host, **{"sec-websocket-protocol": "bloom.run.v1, token.secret"}))
    Guard("secret", "127.0.0.1").check_reading(_request(host="localhost"))


def test_an_address_that_is_none_is_refused_in_a_sentence() -> None:
    for address in ("8081", ":8081", "localhost:", "localhost:99999", "localhost:-1"):
        with raises(ValueError, code="invalid_address"):
            listen(address)


def test_the_server_ends_with_whoever_started_it_and_tells_its_viewers(served: Served) -> None:
    listening = listen("127.0.0.1:0")
    process = subprocess.Popen(
        [sys.executable, "-m", "gpubloom.metrics_server"],
        stdin=subprocess.PIPE,
        pass_fds=(listening.fileno(),),
        env=dict(os.environ),
    )
    assert process.stdin is not None
    process.stdin.write(ServerConfig(str(served.run_dir), listening.fileno(), "secret", resumes=True).line())
    process.stdin.flush()
    viewer = Viewer(f"127.0.0.1:{listening.getsockname()[1]}")
    viewer.message()
    listening.close()
    process.stdin.close()
    kind, content = viewer.frame()
    while kind == 1:
        kind, content = viewer.frame()
    assert (kind, struct.unpack("!H", content[:2])) == (0x8, (1001,))
    viewer.close()
    assert process.wait(TIMEOUT) == 0


def test_a_run_that_ended_is_not_resumed_where_nobody_would_start_it(served: Served, tmp_path: Path) -> None:
    from gpubloom.metrics_server.feed import Feed
    from gpubloom.metrics_server.server import apply_commands
    from gpubloom.traincard import Reporter

    with Reporter(tmp_path / "run", telemetry_seconds=0) as reporter:
        reporter.finish("paused")
    ControlFile(tmp_path / "run").want("pause")
    feed = Feed(tmp_path / "run", resumes=False)
    with raises(Rejected, code="run_ended", match="bloom train --resume"):
        apply_commands(feed, json.dumps({"want": "run"}).encode())
    assert ControlFile(tmp_path / "run").read().want == "pause"
    feed.resumes = True
    apply_commands(feed, json.dumps({"want": "run"}).encode())
    assert ControlFile(tmp_path / "run").read().want == "run"


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 30_000 + b"]" * 30_000,
        b'{"set": {"a": ' + b'{"a":' * 9_000 + b"1" + b"}" * 9_002,
        b'{"want": NaN}',
    ],
    ids=["lists", "objects", "nan"],
)
def test_deep_json_and_nan_are_wrong_requests(served: Served, body: bytes) -> None:
    status, answer = served.send_command(body)
    assert (status, answer["code"]) == (400, "not_json")
    assert served.ask("/api/run")[0] == 200
