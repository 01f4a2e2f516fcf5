"""Which trainers can run here, and what people are told of those that cannot."""

import os
import sys
import tomllib
from pathlib import Path

import pytest

from gpubloom.plan import Gpu, Hardware, TrainConfig, backends
from gpubloom.plan.backends import TRL_NEEDS, UNSLOTH_NEEDS, Backend, available_backends, interpreter_for

ROOT = Path(__file__).parents[2]


def backend(name: str) -> Backend:
    return next(each for each in available_backends() if each.name == name)


@pytest.fixture
def machine_with_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(name="A GPU", memory_bytes=24 << 30)
    machine = Hardware(host_memory_bytes=64 << 30, cpu_cores=8, gpus=(gpu,))
    monkeypatch.setattr(backends, "detect_hardware", lambda: machine)


def environment(folder: Path, versions: dict[str, str]) -> Path:
    """A virtual environment as far as anybody looks: an interpreter, and what is installed beside it."""
    packages = folder / "lib" / "python3.11" / "site-packages"
    for name, version in versions.items():
        info = packages / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    return python


def test_the_engine_is_the_first_choice_and_always_there() -> None:
    first = available_backends()[0]
    assert (first.name, first.available, first.reason) == ("engine", True, None)


def test_every_backend_says_what_it_brings() -> None:
    found = available_backends()
    assert [each.name for each in found] == ["engine", "trl", "unsloth"]
    assert all(each.brings.endswith(".") for each in found)
    assert all(each.available == (each.reason is None) for each in found)


def test_trl_runs_where_its_packages_are() -> None:
    assert backend("trl").available


def test_a_missing_package_is_named_with_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "_installed_here", lambda name: None if name in {"trl", "peft"} else "99")
    found = backend("trl")
    assert not found.available
    assert found.reason == (
        "trl, peft are not installed. Install the extra trl: pip install 'gpubloom[trl]'."
    )


def test_a_package_that_is_too_old_is_named_with_the_version_it_must_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backends, "_installed_here", lambda name: "0.9.6" if name == "trl" else "99")
    assert str(backend("trl").reason).startswith("trl 0.9.6 is too old (at least 1.15 is needed).")


def test_unsloth_without_a_gpu_says_what_to_use_instead() -> None:
    if backends.detect_hardware().gpus:
        pytest.skip("this machine has a GPU")
    assert backend("unsloth").reason == (
        "Unsloth needs a CUDA GPU, and this machine has none: use backend engine or trl."
    )


@pytest.mark.usefixtures("machine_with_gpu")
class TestUnslothsEnvironment:
    def test_that_nobody_named_is_asked_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("BLOOM_UNSLOTH_PYTHON", raising=False)
        assert "set BLOOM_UNSLOTH_PYTHON to its Python interpreter" in str(backend("unsloth").reason)

    def test_that_is_no_program_is_refused(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("BLOOM_UNSLOTH_PYTHON", str(tmp_path / "python"))
        assert "which is not an executable file" in str(backend("unsloth").reason)

    def test_that_is_no_environment_is_refused(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        python = tmp_path / "bin" / "python"
        python.parent.mkdir()
        python.symlink_to(sys.executable)
        monkeypatch.setenv("BLOOM_UNSLOTH_PYTHON", str(python))
        assert "there is no site-packages" in str(backend("unsloth").reason)

    def test_that_lacks_packages_has_them_named(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        python = environment(tmp_path, {**UNSLOTH_NEEDS, "unsloth": "2026.10.7", "trl": "1.2"})
        for gone in tmp_path.glob("lib/*/*/peft-*"):
            (gone / "METADATA").unlink()
            gone.rmdir()
        monkeypatch.setenv("BLOOM_UNSLOTH_PYTHON", str(python))
        reason = str(backend("unsloth").reason)
        assert "peft is not installed; trl 1.2 is too old (at least 1.15 is needed)" in reason
        assert f"{python} -m pip install" in reason

    def test_with_all_packages_is_used(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        python = environment(tmp_path, {**UNSLOTH_NEEDS, "unsloth": "2026.10.7"})
        monkeypatch.setenv("BLOOM_UNSLOTH_PYTHON", str(python))
        found = backend("unsloth")
        assert (found.available, found.python) == (True, str(python))


def test_only_unsloth_asks_for_an_interpreter_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLOOM_UNSLOTH_PYTHON", "/somewhere/bin/python")
    model = {"path": os.devnull}
    asked = [
        interpreter_for(TrainConfig.model_validate({"backend": name, "model": model}))
        for name in ("engine", "trl", "unsloth")
    ]
    assert asked == [None, None, "/somewhere/bin/python"]


def test_versions_are_the_ones_that_the_extra_asks_for() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    declared = dict(line.split(">=") for line in [*extras["trl"], *extras["train"]] if ">=" in line)
    assert {name: declared[name] for name in TRL_NEEDS} == dict(TRL_NEEDS)
