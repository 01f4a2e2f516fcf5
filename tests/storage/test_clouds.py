"""The bucket of rented jobs, and the mirror, at Google Cloud Storage and at Azure Blob Storage."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, parse_qsl, quote, urlencode, urlsplit

import httpx2
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from gpubloom.server.settings import SettingsError, load_settings
from gpubloom.storage import StorageError, StorageSettings, Store
from gpubloom.traincard import Reporter
from gpubloom.traincard.mirror import Mirror, pull
from tests.errors import raises
from tests.storage.clouds import Cloud, azure, google
from tests.storage.instances import Instance, content

pytest.importorskip("obstore")
pytestmark = pytest.mark.xdist_group("clouds")


@pytest.fixture(params=["azure", "gcs"], scope="module")
def cloud(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    opened = azure() if request.param == "azure" else google(tmp_path_factory.mktemp("gcs"))
    with opened as running:
        yield running


def settings_of(cloud: Cloud, **changes: str) -> StorageSettings:
    fields = {"key": cloud.key, "secret": cloud.secret, "endpoint": cloud.endpoint, **changes}
    return StorageSettings("bucket", prefix="bloom", kind=cloud.kind, **fields)  # type: ignore[arg-type]


def test_objects_are_written_read_listed_signed_and_deleted(cloud: Cloud, tmp_path: Path) -> None:
    store = Store(settings_of(cloud))
    store.put("jobs/1/small", b"small")
    large = tmp_path / "large"
    large.write_bytes(b"0123456789" * 1_500_000)
    store.put("jobs/1/large", large)
    assert store.sizes("jobs/1") == {"jobs/1/small": 5, "jobs/1/large": 15_000_000}
    assert store.get("jobs/1/large") == large.read_bytes()
    assert (store.get("jobs/1/nothing"), store.has("jobs/1/nothing"), store.has("jobs/1/small")) == (
        None,
        False,
        True,
    )
    [address] = store.addresses("GET", ["jobs/1/small"], 600)
    assert httpx2.get(address).content == b"small"
    store.delete_folder("jobs/1")
    assert store.sizes("jobs/1") == {}


@pytest.mark.long
def test_a_job_is_sent_runs_and_comes_back_through_it(cloud: Cloud, tmp_path: Path) -> None:
    store = Store(settings_of(cloud))
    there = Instance(
        store, tmp_path, {"train.py": "import os; os.mkdir('model'); open('model/w', 'w').write('weights')"}
    )
    try:
        there.start()
        there.until("ended")
        assert there.code() == 0
    finally:
        there.clean_up()
    assert (there.run_dir / "model/w").read_text() == "weights"
    assert content(there.run_dir) == content(there.there)
    store.delete_folder("jobs")


def test_a_run_is_mirrored_and_pulled_to_the_byte(
    cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in cloud.environment.items():
        monkeypatch.setenv(name, value)
    run_dir = tmp_path / "run"
    mirror = Mirror(run_dir, cloud.mirror_url, every_seconds=0.2).start()
    with Reporter(run_dir, telemetry_seconds=0) as reporter:
        for step in range(1, 201):
            reporter.metric("loss", 1 / step, step)
        (run_dir / "logs").mkdir(exist_ok=True)
        (run_dir / "logs/output.log").write_bytes(b"a line of output\n" * 400_000)
        reporter.finish()
    assert mirror.finish(60)
    pull(cloud.mirror_url, tmp_path / "pulled")
    assert content(tmp_path / "pulled") == content(run_dir)


def test_azure_refuses_a_wrong_key_a_changed_address_and_a_container_that_is_not_there(
    cloud: Cloud,
) -> None:
    if cloud.kind != "azure":
        pytest.skip("the server for Google's API does not check signatures")
    wrong = "A" * 86 + "=="
    with raises(StorageError, code="bucket_unavailable", match="the account key is not accepted"):
        Store(settings_of(cloud, secret=wrong)).put("x", b"x")
    [address] = Store(settings_of(cloud)).addresses("PUT", ["x"], 600)
    kind = {"x-ms-blob-type": "BlockBlob"}
    assert httpx2.put(address, content=b"x", headers=kind).status_code == 201
    for changed in (address.replace("/x?", "/y?"), address.replace("sp=", "sp=r")):
        assert httpx2.put(changed, content=b"x", headers=kind).status_code == 403
    # It may write, and nothing else.
    assert httpx2.get(address).status_code == 403
    nowhere = StorageSettings("nowhere", cloud.key, cloud.secret, cloud.endpoint, kind="azure")
    with raises(StorageError, code="bucket_unavailable", match="the container does not exist"):
        Store(nowhere).put("x", b"x")


def test_an_address_at_google_is_signed_as_its_specification_says(cloud: Cloud) -> None:
    """V4 signatures with a service account's key; checked with its public half."""
    if cloud.kind != "gcs":
        pytest.skip("Azurite checks the signatures of Azure itself")
    [address] = Store(settings_of(cloud)).addresses("PUT", ["jobs/1/a slot"], 600)
    assert parse_qs(urlsplit(address).query)["X-Goog-Expires"] == ["600"]
    assert _is_signed(address, "PUT", cloud)
    assert not _is_signed(address, "GET", cloud)
    assert not _is_signed(address.replace("Expires=600", "Expires=601"), "PUT", cloud)


def _is_signed(address: str, method: str, cloud: Cloud) -> bool:
    parts = urlsplit(address)
    query = dict(parse_qsl(parts.query))
    signature = bytes.fromhex(query.pop("X-Goog-Signature"))
    _, date, region, service, request = query["X-Goog-Credential"].split("/")
    canonical = "\n".join(
        [
            method,
            parts.path,
            urlencode(sorted(query.items()), quote_via=quote, safe=""),
            # The library signs for Google's own host, whatever the endpoint is.
            "host:storage.googleapis.com\n",
            "host",
            "UNSIGNED-PAYLOAD",
        ]
    )
    text = "\n".join(
        [
            "GOOG4-RSA-SHA256",
            query["X-Goog-Date"],
            f"{date}/{region}/{service}/{request}",
            hashlib.sha256(canonical.encode()).hexdigest(),
        ]
    )
    private = serialization.load_pem_private_key(json.loads(cloud.secret)["private_key"].encode(), None)
    assert isinstance(private, rsa.RSAPrivateKey)
    try:
        private.public_key().verify(signature, text.encode(), padding.PKCS1v15(), hashes.SHA256())
    except InvalidSignature:
        return False
    return True


def test_settings_ask_for_what_each_kind_needs() -> None:
    google_cloud = load_settings(
        _env_file=None, storage_kind="gcs", storage_bucket="b", storage_secret='{"type": "service_account"}'
    )
    assert google_cloud.storage is not None
    assert (google_cloud.storage.kind, google_cloud.storage.key) == ("gcs", "")
    for kind, words in (("gcs", "JSON key of a service account"), ("azure", "BLOOM_STORAGE_KEY")):
        with raises(SettingsError, code="invalid_settings", match=words):
            load_settings(_env_file=None, storage_kind=kind, storage_bucket="b")
