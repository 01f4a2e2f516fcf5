"""An admin sets up the bucket of rented jobs while the server runs; every step of its test is shown."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpubloom.server.accounts.tables import User
from gpubloom.server.rentals.tables import Rental
from gpubloom.server.storage.run_stores import RunBucket
from tests.server.installation import Installation, Server
from tests.server.rentals.machines import add_rental
from tests.server.rentals.test_run_files import _job
from tests.traincard_mirror.conftest import KEY, SECRET, S3Server

pytest.importorskip("obstore")
pytestmark = pytest.mark.xdist_group("s3")

_ROUTE = "/api/storage-bucket"
_STEPS = ["write", "list", "upload", "delete"]


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def admin(installation: Installation) -> User:
    return installation.add_user("Ada", role="admin")


@pytest.fixture(autouse=True)
def _loopback_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLOOM_EGRESS_ALLOW", "127.0.0.1")


def _body(s3: S3Server, **changes: Any) -> dict[str, Any]:
    about = {"bucket": "bucket", "access_key": KEY, "secret_key": SECRET, "region": "us-east-1"}
    return {**about, "endpoint": s3.address, **changes}


@pytest.mark.long
def test_a_bucket_is_tested_saved_and_used_without_a_restart(
    server: Server, installation: Installation, admin: User, bucket: S3Server
) -> None:
    browser = server.signed_in(admin)
    before = browser.get(_ROUTE).json()
    assert (before["source"], before["bucket"], before["server_store"]) == (None, None, False)
    assert [guide["name"] for guide in before["guides"]] == ["r2", "b2", "s3"]
    stores = {item["name"]: item["store"] for item in browser.get("/api/providers").json()["items"]}
    assert (stores["paperspace"], stores["modal"]["name"]) == (None, "volume")
    answer = browser.put(_ROUTE, json=_body(bucket, prefix="bloom")).json()
    assert answer["ok"] is True
    assert [(step["name"], step["ok"], step["problem"]) for step in answer["steps"]] == [
        (name, True, None) for name in _STEPS
    ]
    # Nothing of the test is left.
    assert [path for path in (bucket.folder / "bucket").rglob("*") if path.is_file()] == []
    after = browser.get(_ROUTE).json()
    assert (after["source"], after["bucket"], after["access_key"]) == ("settings", "bucket", KEY)
    assert SECRET not in browser.get(_ROUTE).text
    assert SECRET not in installation.everything_stored()
    assert browser.post(f"{_ROUTE}/check").json()["ok"] is True
    providers = browser.get("/api/providers").json()
    assert providers["storage"] == {"ready": True, "reason": None}
    assert {item["store"]["name"] for item in providers["items"]} == {"bucket"}
    assert "storage_bucket.stored" in installation.actions()


def test_a_wrong_key_gives_a_sentence_at_once_and_saves_nothing(
    server: Server, installation: Installation, admin: User, bucket: S3Server
) -> None:
    browser = server.signed_in(admin)
    answer = browser.put(_ROUTE, json=_body(bucket, secret_key="wrong-and-private"))
    assert answer.json()["ok"] is False
    [write, *rest] = answer.json()["steps"]
    assert write["ok"] is False
    assert "secret key does not belong to this access key" in write["problem"]
    assert [step["ok"] for step in rest] == [None, None, None]
    assert "wrong-and-private" not in answer.text
    unknown = browser.put(_ROUTE, json=_body(bucket, access_key="nobody")).json()["steps"][0]
    assert "access key is unknown" in unknown["problem"]
    missing = browser.put(_ROUTE, json=_body(bucket, bucket="missing")).json()["steps"][0]
    assert "does not exist" in missing["problem"]
    assert installation.all(RunBucket) == []
    assert browser.post(f"{_ROUTE}/check").status_code == 404


def test_an_endpoint_in_a_private_network_is_refused(
    server: Server, admin: User, bucket: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BLOOM_EGRESS_ALLOW", "")
    [write, *_] = server.signed_in(admin).put(_ROUTE, json=_body(bucket)).json()["steps"]
    assert write["ok"] is False
    assert "private or reserved network" in write["problem"]


@pytest.mark.parametrize(
    "changes",
    [
        {"region": "evil.example.org/?x="},
        {"kind": "azure", "access_key": "evil.example.org/", "secret_key": "a2V5"},
        {"kind": "gcs", "secret_key": '{"gcs_base_url": "%s", "disable_oauth": true, "client_email": ""}'},
    ],
    ids=["region", "account", "key of Google"],
)
def test_no_other_field_leads_to_another_host_than_the_endpoint(
    server: Server, admin: User, bucket: S3Server, changes: dict[str, str]
) -> None:
    changes = {name: value.replace("%s", bucket.address) for name, value in changes.items()}
    answer = server.signed_in(admin).put(_ROUTE, json={**_body(bucket), "endpoint": "", **changes})
    [write, *_] = answer.json()["steps"]
    assert write["ok"] is False
    assert "not valid" in write["problem"] or "another server" in write["problem"]


def test_only_admins_see_or_change_the_bucket(
    server: Server, installation: Installation, admin: User, bucket: S3Server
) -> None:
    member = server.signed_in(installation.add_user("Eve"))
    for method, path in (("GET", ""), ("PUT", ""), ("DELETE", ""), ("POST", "/check")):
        answer = member.request(method, _ROUTE + path, json=_body(bucket) if method == "PUT" else None)
        assert answer.status_code == 403, (method, path)
    assert installation.all(RunBucket) == []


def test_a_bucket_that_machines_use_is_neither_removed_nor_replaced(
    server: Server, installation: Installation, admin: User, bucket: S3Server, tmp_path: Path
) -> None:
    browser = server.signed_in(admin)
    browser.put(_ROUTE, json=_body(bucket))
    rental: Rental = add_rental(installation, _job(installation, admin), state="running", store="bucket")
    assert browser.delete(_ROUTE).json()["code"] == "store_in_use"
    assert browser.put(_ROUTE, json=_body(bucket, prefix="other")).json()["code"] == "store_in_use"
    # A new key of the same bucket is no other bucket.
    assert browser.put(_ROUTE, json=_body(bucket, region="eu-west-1")).json()["ok"] is True
    installation.change(rental, state="ended")
    assert browser.delete(_ROUTE).status_code == 204
    assert installation.all(RunBucket) == []
    assert browser.delete(_ROUTE).json()["code"] == "no_store"


def test_what_the_operator_set_is_shown_and_not_changed(
    installation: Installation, admin: User, bucket: S3Server
) -> None:
    with installation.serve(storage_bucket="b", storage_key="k", storage_secret="s") as server:
        browser = server.signed_in(admin)
        assert browser.get(_ROUTE).json()["source"] == "environment"
        assert browser.put(_ROUTE, json=_body(bucket)).json()["code"] == "set_by_operator"
        assert browser.delete(_ROUTE).json()["code"] == "set_by_operator"
