"""A run is sent over https between two network namespaces: the server is killed, the link is cut."""

import ipaddress
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.engine.parallel.cable import Cable
from tests.live_server import live_server
from tests.traincard.sending import SCRIPT, add_token, arrived, events_of, stored
from tests.waiting import wait_until

# TLS in front of the server, as an operator's proxy does it. The server's port is in a file: it changes.
PROXY = """
import asyncio, ssl, sys
from pathlib import Path
address, certificate, port_file = sys.argv[1:]
async def copy(reader, writer):
    try:
        while piece := await reader.read(65_536):
            writer.write(piece)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
async def serve(reader, writer):
    try:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", int(Path(port_file).read_text()))
    except (OSError, ValueError):
        writer.close()
        return
    await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))
async def main():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server = await asyncio.start_server(serve, address, 8443, ssl=context)
    print("ready", flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


@pytest.fixture
def cable() -> Iterator[Cable]:
    if os.geteuid() != 0:
        pytest.skip("only root may make network namespaces")
    with ExitStack() as stack:
        try:
            cable = stack.enter_context(Cable())
        except OSError as problem:
            pytest.skip(f"no network namespaces here: {problem}")
        yield cable


def _write_certificate(folder: Path, address: str) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bloom.test")])
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "certificate.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.mark.long
@pytest.mark.parametrize("seconds", [5.0, pytest.param(60.0, marks=pytest.mark.timeout(600))])
def test_a_run_from_another_namespace_arrives_whole_in_order_and_once(
    tmp_path: Path, cable: Cable, seconds: float
) -> None:
    home, run_dir = tmp_path / "home", tmp_path / "run"
    stop, port_file = tmp_path / "stop", tmp_path / "port"
    certificate = _write_certificate(tmp_path, cable.head.address)
    address = f"https://{cable.head.address}:8443"
    started = [*cable.head.entering, sys.executable, "-c", PROXY, cable.head.address]
    with ExitStack() as stack:
        proxy = subprocess.Popen(
            [*started, str(certificate), str(port_file)], stdout=subprocess.PIPE, text=True
        )
        stack.callback(proxy.wait)
        stack.callback(proxy.kill)
        assert proxy.stdout is not None
        stack.callback(proxy.stdout.close)
        assert proxy.stdout.readline() == "ready\n"
        token, sender = "", None
        for start in range(4):
            with live_server(
                home, entering=cable.head.entering, BLOOM_ALLOWED_HOSTS=cable.head.address
            ) as server:
                port_file.write_text(server.address.rpartition(":")[2])
                if start == 0:
                    token = add_token(server)
                    environment = {
                        **{name: value for name, value in os.environ.items() if name != "BLOOM_JOB_ID"},
                        "BLOOM_SERVER": address,
                        "BLOOM_TOKEN": token,
                        "SSL_CERT_FILE": str(certificate),
                        # However slow the machine is: no more points than one answer has room for.
                        "STEP_SECONDS": "0.03" if seconds < 60 else "0.2",
                    }
                    script = [*cable.node.entering, sys.executable, "-c", SCRIPT, str(run_dir), str(stop)]
                    sender = subprocess.Popen(script, env=environment)
                    stack.callback(sender.wait)
                    stack.callback(sender.kill)
                assert sender is not None
                before = arrived(home)
                wait_until(lambda before=before: arrived(home) > before)
                if start == 3:
                    cable.pull()
                    time.sleep(seconds)
                    cable.plug_in()
                    cut = arrived(home)
                    wait_until(lambda cut=cut: arrived(home) > cut)
                    stop.touch()
                    assert sender.wait(120) == 0
                else:
                    server.process.send_signal(signal.SIGKILL)
                    server.process.wait()
    run_id = json.loads((run_dir / ".sender/state.json").read_text())["id"]
    assert events_of(home / "runs" / run_id) == events_of(run_dir)
    steps = sum(kind == "metric" for _, _, kind, _ in events_of(run_dir))
    with live_server(home) as server:
        row, points = stored(server, token, run_id)
    assert (row["status"], row["project_name"]) == ("completed", "Sweep")
    assert 100 < steps == len(points) < 5_000
    assert points == [(step, pytest.approx(1 / step)) for step in range(1, steps + 1)]
