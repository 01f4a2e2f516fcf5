"""Which training data a project may name: nothing outside the folders that the operator allowed."""

from pathlib import Path

import pytest

from gpubloom.server.accounts.tables import User
from gpubloom.server.projects.data_paths import DataPathRefused, check_data_path
from gpubloom.server.settings import Settings
from tests.server.installation import Installation


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    settings = Settings(_env_file=None, home=tmp_path / "home", data_roots=(allowed,))
    settings.uploads.mkdir(parents=True)
    return settings


@pytest.mark.parametrize(
    "path",
    [
        "corpus.jsonl",
        "my folder/corpus.jsonl",
        "..hidden/file...txt",
        "s3://my-bucket/datasets/quantum-corpus/",
        "gs://bucket/x",
        "az://container/x",
        "hf://datasets/stanford/alpaca",
        "https://example.org/data.jsonl?part=1",
        "S3://bucket/x",
        "~/corpus",
    ],
)
def test_uploads_and_remote_addresses_are_accepted_as_they_are(settings: Settings, path: str) -> None:
    assert check_data_path(path, settings) == path


def test_a_path_inside_an_allowed_root_is_accepted(settings: Settings) -> None:
    for root in (settings.uploads, *settings.data_roots):
        assert check_data_path(f"{root}/deep/corpus", settings) == f"{root}/deep/corpus"
        assert check_data_path(str(root), settings) == str(root)


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../bloom.db",
        "a/../../bloom.db",
        "%2e%2e/bloom.db",
        "%252e%252e/bloom.db",
        "%25252e%25252e/bloom.db",
        "%2e%2e%2fbloom.db",
        "..%5cbloom.db",
        "..\\bloom.db",
        "a\\..\\..\\b",
        "/etc/passwd",
        "//etc/passwd",
        "/proc/self/environ",
        "/",
        "file:///etc/passwd",
        "FILE:///etc/passwd",
        "file://localhost/etc/passwd",
        "http://169.254.169.254/latest/meta-data",
        "ftp://example.org/x",
        "javascript://x",
        "://x",
        "s3://",
        "s3:///key",
        "https://user:password@example.org/x",
        "https://token@example.org/x",
        "https://:password@example.org/x",
        "https://[::1/x",
        "s3://bucket/../other",
        "s3://bucket/%2e%2e/other",
        "a\x00b",
    ],
)
def test_everything_else_is_refused_with_a_sentence(settings: Settings, path: str) -> None:
    with pytest.raises(DataPathRefused) as refused:
        check_data_path(path, settings)
    assert refused.value.code != "failed"
    assert " " in str(refused.value)


def test_a_sibling_whose_name_begins_like_a_root_is_outside(settings: Settings) -> None:
    with pytest.raises(DataPathRefused):
        check_data_path(f"{settings.data_roots[0]}-private/x", settings)


def test_a_symbolic_link_out_of_the_folder_is_refused(settings: Settings, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (settings.uploads / "link").symlink_to(secret)
    (settings.uploads / "inside").symlink_to(settings.data_roots[0])
    with pytest.raises(DataPathRefused):
        check_data_path("link/file", settings)
    assert check_data_path("inside/file", settings) == "inside/file"


def test_a_loop_of_links_is_refused(settings: Settings) -> None:
    (settings.uploads / "one").symlink_to(settings.uploads / "two")
    (settings.uploads / "two").symlink_to(settings.uploads / "one")
    with pytest.raises(DataPathRefused):
        check_data_path("one/file", settings)


def test_the_api_names_the_field_and_what_to_do(installation: Installation, member: User) -> None:
    body = {
        "name": "x",
        "modelArchitecture": "custom",
        "modelSize": 1,
        "trainingDataPath": "/etc/passwd",
    }
    with installation.serve() as server:
        answer = server.signed_in(member).post("/api/projects", json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "trainingDataPath"
    assert "BLOOM_DATA_ROOTS" in answer.json()["detail"]
