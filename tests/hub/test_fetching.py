"""Models from a hub and to one: whole or absent, resumed, equal by hash, and in plain words when it fails."""

import hashlib
from pathlib import Path

import pytest

from gpubloom.hub.checking import check_model
from gpubloom.hub.fetching import _matches, fetch_model, fetched_models, local_model
from gpubloom.hub.problems import HubProblem
from gpubloom.hub.pushing import push_folder
from gpubloom.hub.repositories import ANONYMOUS
from tests.errors import raises
from tests.hub.fake_hub import TOKEN, FakeHub, Repo

# The hub's library uploads in a way that its HTTP library deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=")


def contents(folder: Path) -> dict[str, bytes]:
    return {
        file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()
    }


def hashes(folder: Path) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in contents(folder).items()}


def test_a_model_is_pushed_and_pulled_and_every_file_has_the_same_hash(
    hub: FakeHub, tiny_model: Path, tmp_path: Path
) -> None:
    pushed = push_folder(tiny_model, "me/tuned", token=TOKEN)
    assert hub.repos["model", "me/tuned"].private
    assert pushed.url == f"{hub.url}/me/tuned"
    fetched = fetch_model("me/tuned", tmp_path / "back", token=TOKEN)
    assert fetched.revision == pushed.revision
    assert hashes(tmp_path / "back") == hashes(tiny_model)
    assert check_model(tmp_path / "back").ok


def test_large_files_go_up_in_parts_when_the_hub_wants_parts(
    hub: FakeHub, tiny_model: Path, tmp_path: Path
) -> None:
    hub.part_size = 100_000
    push_folder(tiny_model, "me/tuned", token=TOKEN, private=False)
    assert any("/part/" in path for _, path, _ in hub.requests)
    assert not hub.repos["model", "me/tuned"].private
    fetch_model("me/tuned", tmp_path / "back", token=ANONYMOUS)
    assert hashes(tmp_path / "back") == hashes(tiny_model)


def test_pushing_again_adds_a_commit_to_the_same_repository(hub: FakeHub, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    first = push_folder(tmp_path, "me/tuned", token=TOKEN)
    (tmp_path / "config.json").write_text('{"a": 1}')
    second = push_folder(tmp_path, "me/tuned", token=TOKEN)
    assert first.revision != second.revision
    assert hub.repos["model", "me/tuned"].files == {"config.json": b'{"a": 1}'}


def test_only_weights_configuration_and_tokenizer_are_fetched(
    hub: FakeHub, tiny_model: Path, tmp_path: Path
) -> None:
    unwanted = {
        "pytorch_model.bin": b"x" * 50,
        "training_args.pt": b"x",
        "modeling_evil.py": b"print()",
        "consolidated.safetensors": b"x" * 50,
        "original/params.json": b"{}",
        ".gitattributes": b"*",
        "../../outside.json": b"{}",
        "run.sh": b"rm",
    }
    hub.add("org/model", contents(tiny_model) | unwanted)
    fetch_model("org/model", tmp_path / "a" / "model", token=ANONYMOUS)
    assert set(contents(tmp_path / "a" / "model")) == set(contents(tiny_model))
    asked = {path for method, path, _ in hub.requests if method == "GET"}
    assert not [path for path in asked if "pytorch_model.bin" in path or "evil" in path]
    assert not (tmp_path / "outside.json").exists()


def test_progress_counts_every_byte_once(hub: FakeHub, tiny_model: Path, tmp_path: Path) -> None:
    hub.add("org/model", contents(tiny_model))
    seen: list[tuple[int, int]] = []
    fetched = fetch_model("org/model", tmp_path / "m", token=ANONYMOUS, progress=lambda *at: seen.append(at))
    total = sum(len(content) for content in contents(tiny_model).values())
    assert seen[-1] == (total, total)
    assert fetched.bytes == total
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_a_broken_connection_is_continued_where_it_broke(
    hub: FakeHub, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The library hands bytes on in pieces of this size, and loses the piece that it was in.
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 65_536)
    hub.add("org/model", contents(tiny_model))
    hub.cut_after = [200_000]
    seen: list[tuple[int, int]] = []
    fetch_model("org/model", tmp_path / "m", token=ANONYMOUS, progress=lambda *at: seen.append(at))
    assert hashes(tmp_path / "m") == hashes(tiny_model)
    assert "bytes=196608-" in {headers.get("range", headers.get("Range")) for _, _, headers in hub.requests}
    assert seen[-1][0] == seen[-1][1]


def test_a_fetch_that_was_stopped_shows_nothing_and_goes_on_with_what_it_has(
    hub: FakeHub, tiny_model: Path, tmp_path: Path
) -> None:
    hub.add("org/model", contents(tiny_model))
    half = len((tiny_model / "model.safetensors").read_bytes()) // 2

    def stop(done: int, total: int) -> None:
        if done > half:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_model("org/model", tmp_path / "m", token=ANONYMOUS, progress=stop)
    assert not (tmp_path / "m").exists()
    before = len(hub.requests)
    fetch_model("org/model", tmp_path / "m", token=ANONYMOUS)
    assert hashes(tmp_path / "m") == hashes(tiny_model)
    again = [path for method, path, _ in hub.requests[before:] if method == "GET"]
    assert not [path for path in again if path.endswith("tokenizer.json")], "small files were there already"
    assert [path.name for path in tmp_path.iterdir()] == ["m"], "nothing hidden is left"


def test_what_arrives_damaged_is_refused(hub: FakeHub, tiny_model: Path, tmp_path: Path) -> None:
    hub.add("org/model", contents(tiny_model))
    with pytest.raises(KeyboardInterrupt):
        fetch_model("org/model", tmp_path / "m", token=ANONYMOUS, progress=_stop_late)
    (hidden,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    (hidden / "config.json").write_bytes(b"?" * (hidden / "config.json").stat().st_size)
    with raises(HubProblem, code="damaged") as caught:
        fetch_model("org/model", tmp_path / "m", token=ANONYMOUS)
    assert caught.value.code == "damaged"
    fetch_model("org/model", tmp_path / "m", token=ANONYMOUS)
    assert hashes(tmp_path / "m") == hashes(tiny_model)


def _stop_late(done: int, total: int) -> None:
    if done > total // 2:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("about", "token", "code"),
    [
        ({"private": True}, ANONYMOUS, "not_found"),
        ({"gated": True}, ANONYMOUS, "no_access"),
        ({}, "hf_wrong", "no_access"),
    ],
)
def test_no_access_is_said_in_a_sentence(
    hub: FakeHub, tmp_path: Path, about: dict[str, bool], token: str, code: str
) -> None:
    hub.add("org/model", {"config.json": b"{}"}, **about)
    with raises(HubProblem, code=code):
        fetch_model("org/model", tmp_path / "m", token=token)
    assert not (tmp_path / "m").exists()


def test_what_is_not_there_is_said_in_a_sentence(hub: FakeHub, tmp_path: Path) -> None:
    hub.add("org/model", {"pytorch_model.bin": b"x"})
    for name, revision, code in [
        ("org/none", None, "not_found"),
        ("org/model", "0" * 40, "not_found"),
        ("org/model", None, "no_safetensors"),
        ("a/b/c", None, "not_found"),
    ]:
        with raises(HubProblem, code=code):
            fetch_model(name, tmp_path / "m", revision=revision, token=ANONYMOUS)


def test_no_network_is_said_in_a_sentence(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with raises(HubProblem, code="no_network") as caught:
        fetch_model("org/model", tmp_path / "m", token=ANONYMOUS)
    assert caught.value.code == "no_network"


def test_a_full_disk_is_noticed_before_anything_is_fetched(
    hub: FakeHub, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    hub.add("org/model", contents(tiny_model))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 1_000))
    with raises(HubProblem, code="disk_full") as caught:
        fetch_model("org/model", tmp_path / "m", token=ANONYMOUS)
    assert caught.value.code == "disk_full"
    assert not [path for _, path, _ in hub.requests if "/resolve/" in path]


def test_a_token_that_may_not_write_and_no_token_are_told_apart(hub: FakeHub, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with raises(HubProblem, code="no_access"):
        push_folder(tmp_path, "me/m", token=ANONYMOUS)
    with raises(HubProblem, code="no_access") as caught:
        push_folder(tmp_path, "me/m", token="hf_wrong")
    assert "hf_wrong" not in str(caught.value)


def test_a_name_means_a_folder_first_and_then_a_model_of_the_hub(
    hub: FakeHub, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = hub.add("org/model", contents(tiny_model))
    assert local_model(str(tiny_model), tmp_path) == tiny_model
    found = local_model("org/model", tmp_path, token=ANONYMOUS)
    assert found == tmp_path / "hub" / "models" / "org--model" / repo.revision()
    asked = len([path for _, path, _ in hub.requests if "/resolve/" in path])
    assert local_model("org/model", tmp_path, token=ANONYMOUS) == found
    assert len([path for _, path, _ in hub.requests if "/resolve/" in path]) == asked, "it is kept"
    assert fetched_models(tmp_path) == [found]
    first = repo.revision()
    repo.commits.append({**contents(tiny_model), "README.md": b"new"})
    assert local_model("org/model", tmp_path, token=ANONYMOUS).name == repo.revision()
    assert local_model(f"org/model@{first}", tmp_path, token=ANONYMOUS) == found

    said: list[str] = []
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert local_model(f"org/model@{first}", tmp_path, token=ANONYMOUS, say=said.append) == found
    assert f"earlier download {first[:12]}" in said[0]
    with raises(HubProblem, code="not_found"):
        local_model("nowhere", tmp_path)


def test_a_path_that_is_wrong_is_called_a_folder_and_not_a_network_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    for name in ("./tiny", str(tmp_path / "tiny"), "models/tiny", "~/no-such-model"):
        with raises(HubProblem, code="not_found", match="does not exist"):
            local_model(name, tmp_path)
    with raises(HubProblem, code="no_network", match="There is no folder org/model here"):
        local_model("org/model", tmp_path)


def test_the_token_is_in_no_representation(hub: FakeHub) -> None:
    from gpubloom.hub.repositories import RemoteRepository

    hub.add("org/model", {"config.json": b"{}"}, private=True)
    assert TOKEN not in repr(RemoteRepository.open("org/model", token=TOKEN))


def test_the_token_stays_with_the_hub_when_content_lies_on_another_host(
    hub: FakeHub, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("org/model", contents(tiny_model), private=True)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    # Another name for the same machine is another host to the library.
    hub.url = hub.url.replace("127.0.0.1", "localhost")
    fetch_model("org/model", tmp_path / "m")
    stored = [headers for _, path, headers in hub.requests if path.startswith("/store/")]
    assert stored
    assert all("authorization" not in {name.casefold() for name in headers} for headers in stored)


@pytest.mark.parametrize(
    ("pattern", "path", "is_named"),
    [
        ("data/train-*-of-?.parquet", "data/train-0-of-9.parquet", True),
        ("data/*.parquet", "data/more/x.parquet", False),
        ("**/x.parquet", "data/more/x.parquet", True),
        ("./data/", "data/more/x.parquet", True),
        ("data", "database/x.parquet", False),
        # As a regular expression, this takes days.
        ("*a" * 30 + "*b", "a" * 200 + ".parquet", False),
    ],
)
def test_globs_of_datasets_name_files(pattern: str, path: str, is_named: bool) -> None:
    assert _matches(pattern, path) == is_named


@pytest.mark.parametrize("commit", ["../../../../outside", "/etc", "", "a/b", "None\n"])
def test_a_commit_that_is_a_path_names_no_folder(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commit: str
) -> None:
    hub.add("ada/tiny", {"config.json": b"{}", "model.safetensors": b"x"})
    monkeypatch.setattr(Repo, "revision", lambda self, number=-1: commit)
    with raises(HubProblem, code="damaged"):
        fetch_model("ada/tiny", tmp_path / "home" / "model", token=TOKEN)
    assert list(tmp_path.iterdir()) == []
