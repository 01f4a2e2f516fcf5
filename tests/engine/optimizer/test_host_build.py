"""How the C kernel comes to be: once for a machine, however many ask, and never in silence when it cannot."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from gpubloom.engine.optimizer.host import HostAdamW, build
from gpubloom.engine.optimizer.host.adamw import KINDS, kind_name
from tests.engine.optimizer.arrays import State, same_bits

DESCRIBE = "from gpubloom.engine.optimizer.host import HostAdamW; print(HostAdamW(2).description)"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "gpubloom"


@pytest.fixture(scope="module")
def in_c(tmp_path_factory: pytest.TempPathFactory) -> HostAdamW:
    """As every other process gets it: compiled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        built = HostAdamW(2)
    assert built.description == "C, 2 threads"
    return built


@pytest.fixture
def compilations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a line for each compilation, written by a compiler that passes everything on."""
    real = shutil.which("cc")
    assert real is not None, "these tests need a C compiler"
    log = tmp_path / "compilations"
    log.touch()
    script = f'#!/bin/sh\ncase "$*" in *-o*) echo once >> "{log}";; esac\nexec "{real}" "$@"\n'
    monkeypatch.setenv("BLOOM_CC", str(_program(tmp_path / "logging-cc", script)))
    return log


def _program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def _describe() -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", DESCRIBE], stdout=subprocess.PIPE, text=True)


@pytest.mark.long
def test_a_second_process_does_not_compile(cache: Path, compilations: Path) -> None:
    assert HostAdamW(2).description == "C, 2 threads"
    assert _describe().communicate()[0] == "C, 2 threads\n"
    assert compilations.read_text() == "once\n"
    assert len(list(cache.iterdir())) == 1


@pytest.mark.long
def test_processes_that_build_at_once_all_get_the_library(cache: Path) -> None:
    processes = [_describe() for _ in range(3)]
    assert [process.communicate()[0] for process in processes] == ["C, 2 threads\n"] * 3
    assert [path.suffix for path in cache.iterdir()] == [".so"]


@pytest.mark.parametrize("kind", KINDS, ids=kind_name)
def test_without_a_compiler_torch_gives_the_same_bits_and_says_why(
    kind: object, in_c: HostAdamW, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    in_torch = HostAdamW(2)
    assert in_torch.description == (
        "torch (no C compiler: neither cc nor gcc nor clang is installed), 2 threads"
    )
    one, other = (State.draw(70_001, kind).train(adamw, 3) for adamw in (in_c, in_torch))
    assert same_bits(one, other)


def test_a_compiler_that_is_not_there_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLOOM_CC", "no-such-compiler")
    assert (
        HostAdamW(1).description
        == "torch (BLOOM_CC is set to no-such-compiler, which does not exist), 1 thread"
    )


def test_what_a_failing_compiler_says_is_passed_on(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = '#!/bin/sh\n[ "$1" = --version ] && exit 0\necho "no headers here" >&2\nexit 1\n'
    monkeypatch.setenv("BLOOM_CC", str(_program(tmp_path / "broken-cc", script)))
    assert "broken-cc failed: no headers here" in HostAdamW(1).description
    assert list(cache.iterdir()) == []


def test_a_compiler_without_native_flags_still_builds(
    in_c: HostAdamW, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = '#!/bin/sh\ncase "$*" in *=native*) echo unknown >&2; exit 1;; esac\nexec cc "$@"\n'
    monkeypatch.setenv("BLOOM_CC", str(_program(tmp_path / "plain-cc", script)))
    plain = HostAdamW(1)
    assert plain.description == "C, 1 thread"
    for kind in KINDS:
        one, other = (State.draw(5_003, kind).train(adamw, 3) for adamw in (plain, in_c))
        assert same_bits(one, other), "vector width must not change a bit"


def test_without_a_cache_the_library_is_built_for_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert HostAdamW(1).description == "C, 1 thread"


def test_nothing_is_loaded_from_a_folder_that_others_can_write_to(cache: Path, compilations: Path) -> None:
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    for _ in range(2):
        assert HostAdamW(1).description == "C, 1 thread"
    assert compilations.read_text() == "once\nonce\n"
    assert list(cache.iterdir()) == []


@pytest.mark.long
def test_a_damaged_library_is_built_again(cache: Path, compilations: Path) -> None:
    assert _describe().communicate()[0] == "C, 2 threads\n"
    (library,) = cache.iterdir()
    whole = library.stat().st_size
    os.truncate(library, 0)
    assert HostAdamW(2).description == "C, 2 threads"
    assert library.stat().st_size == whole
    assert compilations.read_text() == "once\nonce\n"


def test_another_processor_gets_a_library_of_its_own(
    cache: Path, compilations: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    HostAdamW(1)
    monkeypatch.setattr(build, "_processor", lambda: "a processor with fewer flags")
    HostAdamW(1)
    assert len(list(cache.iterdir())) == 2
