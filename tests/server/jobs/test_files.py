"""Archive, output and model files: bounded, continuable, and never outside the run."""

import io
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpubloom.server.accounts.tables import User
from gpubloom.server.jobs.download_routes import TarView
from gpubloom.server.jobs.files import FoundFile, remove_run
from gpubloom.server.jobs.logs import read_output, search_output
from tests.server.bringing import clear_away
from tests.server.installation import Installation, Server
from tests.server.jobs.recorded import add_job


def _found(folder: Path, contents: dict[str, bytes]) -> list[FoundFile]:
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return [
        FoundFile(folder.parent, folder.name, name, len(content), (folder / name).stat().st_mtime_ns)
        for name, content in sorted(contents.items())
    ]


def test_the_archive_is_a_real_tar(tmp_path: Path) -> None:
    contents = {"config.json": b"{}", "model.safetensors": bytes(range(256)) * 40, "empty": b"", "a/ü": b"x"}
    view = TarView(_found(tmp_path, contents), "model")
    data = b"".join(view.read(0, view.size))
    assert len(data) == view.size
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        read = {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]
    assert read == {f"model/{name}": content for name, content in contents.items()}


@given(st.data())
def test_any_part_of_the_archive_is_that_part_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("parts")
    view = TarView(_found(folder, {"a": b"1" * 700, "b": b"2" * 512}), "m")
    whole = b"".join(view.read(0, view.size))
    start = data.draw(st.integers(0, view.size))
    end = data.draw(st.integers(start, view.size))
    assert b"".join(view.read(start, end)) == whole[start:end]


def _output(tmp_path: Path, content: bytes, name: str = "output.log") -> Path:
    (tmp_path / "logs").mkdir(exist_ok=True)
    (tmp_path / "logs" / name).write_bytes(content)
    return tmp_path


def test_the_output_is_followed_without_gaps_or_repeats(tmp_path: Path) -> None:
    run = _output(tmp_path, b"one\ntwo\nthr")
    part = read_output(run, after=None, most_lines=10)
    assert part.lines == ["one", "two"]
    with (run / "logs/output.log").open("ab") as log:
        log.write(b"ee\nfour\n")
    assert read_output(run, after=part.end, most_lines=10).lines == ["three", "four"]


def test_a_progress_bar_shows_what_it_showed_last(tmp_path: Path) -> None:
    run = _output(tmp_path, b"10 %\r50 %\r100 %\n\xff bytes\n")
    assert read_output(run, after=None, most_lines=10).lines == ["100 %", "\ufffd bytes"]


def test_a_huge_output_is_read_in_bounded_pieces(tmp_path: Path) -> None:
    run = _output(tmp_path, b"".join(b"line %d\n" % number for number in range(200_000)))
    part = read_output(run, after=None, most_lines=100)
    assert (len(part.lines), part.lines[-1]) == (100, "line 199999")
    assert len(read_output(run, after=0, most_lines=100).lines) < 40_000


def test_search_finds_the_newest_lines_in_both_files(tmp_path: Path) -> None:
    _output(tmp_path, b"Error: old\nfine\n", "output.1.log")
    run = _output(tmp_path, b"fine\nERROR: new\n")
    assert search_output(run, "error", most=10) == (["Error: old", "ERROR: new"], False)
    assert search_output(run, "error", most=1) == (["ERROR: new"], True)


def test_without_output_there_is_nothing(tmp_path: Path) -> None:
    assert read_output(tmp_path, after=None, most_lines=5).lines == []
    assert search_output(tmp_path, "x", most=5) == ([], False)


def test_a_deleted_run_that_a_killed_server_left_is_removed_by_a_worker(
    server: Server, installation: Installation, member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object, **__: object) -> None:
        raise Killed

    deleted, other = (add_job(installation, member, status="completed") for _ in range(2))
    folders = [installation.home / "runs" / str(job.id) for job in (deleted, other)]
    for folder in folders:
        (folder / "checkpoints/step-00000001").mkdir(parents=True)
        (folder / "checkpoints/step-00000001/model.safetensors").write_bytes(b"x")
    with monkeypatch.context() as patched:
        patched.setattr("shutil.rmtree", killed)
        with pytest.raises(Killed):
            remove_run(folders[0])
    assert not folders[0].exists()
    assert len(list((installation.home / "runs").iterdir())) == 2
    clear_away(server.settings)
    assert list((installation.home / "runs").iterdir()) == [folders[1]]
