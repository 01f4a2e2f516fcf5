"""What a tenant's jobs compiled: found by the next job, seen by nobody else, removed when unused."""

import os
import shutil
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID, uuid4

import pytest
import torch

from gpubloom.engine.compile_cache import use_compile_cache
from gpubloom.providers.local.sandbox import Sandbox, limits_of_a_training
from gpubloom.sandbox.launch import inside_environment
from gpubloom.server.clock import now
from gpubloom.worker.compiler_caches import tenant_cache
from tests.server.bringing import clear_away
from tests.server.conftest import kind  # noqa: F401 - both databases
from tests.worker.machine import Machine

CPU = torch.device("cpu")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of the server's own user."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))
    return tmp_path / "own" / "gpubloom"


def _file(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    return path


def _age(path: Path, days: float) -> None:
    moment = (now() - timedelta(days=days)).timestamp()
    os.utime(path, (moment, moment))


def _cache(machine: Machine, tenant: UUID, *, days: float) -> Path:
    folder = tenant_cache(machine.settings.home, str(tenant))
    _file(folder / "gpubloom" / "programs-a" / "program")
    _age(folder, days)
    return folder


def test_a_job_finds_the_programs_of_the_server_and_compiles_beside_them(
    tmp_path: Path, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    # What an operator set for programs outside is a folder that a job does not see.
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "outside"))
    with patch.dict(os.environ):
        compiled = use_compile_cache(CPU)
    assert compiled is not None
    assert compiled.parent == server
    _file(compiled / "fxgraph" / "program")
    cache = tenant_cache(tmp_path / "home", "me")
    sandbox = Sandbox(tmp_path / "run", tmp_path / "home", "me", limits_of_a_training())
    options = sandbox.of_a_training([], cache, noun="training", python=sys.executable)
    with patch.dict(os.environ, inside_environment(options, os.environ), clear=True):
        found = use_compile_cache(CPU)
        triton = Path(os.environ["TRITON_CACHE_DIR"])
    assert found is not None
    assert (found / "fxgraph" / "program").read_text() == "x"
    assert found.is_relative_to(cache)
    assert triton.is_relative_to(found)


def test_a_tenants_cache_begins_as_a_copy_that_changes_nobody_elses(tmp_path: Path, server: Path) -> None:
    library = _file(server / "adamw.so")
    mine, theirs = tenant_cache(tmp_path / "home", "me"), tenant_cache(tmp_path / "home", "they")
    (mine / "gpubloom" / "adamw.so").write_text("changed by a job")
    assert tenant_cache(tmp_path / "home", "me") == mine
    assert (mine / "gpubloom" / "adamw.so").read_text() == "changed by a job"
    assert library.read_text() == (theirs / "gpubloom" / "adamw.so").read_text() == "x"


def test_data_and_runs_of_the_servers_user_are_not_copied(tmp_path: Path, server: Path) -> None:
    for name in ("data/text.txt", "runs/run.json", "programs-a/program", "machine-a.json"):
        _file(server / name)
    cache = tenant_cache(tmp_path / "home", "me")
    assert sorted(path.name for path in (cache / "gpubloom").iterdir()) == ["machine-a.json", "programs-a"]


def test_a_job_cannot_choose_where_the_servers_programs_are_copied_to(
    tmp_path: Path, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two first jobs of a tenant one may run already, while the server still copies for the other."""
    _file(server / "adamw.so")
    folder, theirs = tmp_path / "home" / "cache" / "compiled" / "me", tmp_path / "theirs"
    theirs.mkdir()
    copy = shutil.copyfile

    def copied_while_a_job_runs(source: str, target: str, **more: Any) -> str:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "gpubloom").symlink_to(theirs)
        return str(copy(source, target, **more))

    monkeypatch.setattr(shutil, "copyfile", copied_while_a_job_runs)
    assert tenant_cache(tmp_path / "home", "me") == folder
    assert list(theirs.iterdir()) == []
    assert [path.name for path in folder.parent.iterdir()] == ["me"]


def test_what_cannot_be_copied_is_left_out(
    tmp_path: Path, server: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of the server's user may remove a program at the same time."""
    for name in ("programs-a/program", "adamw.so"):
        _file(server / name)
    copy = shutil.copyfile

    def copied_unless_gone(source: str, target: str, **more: Any) -> str:
        if Path(source).name == "program":
            raise FileNotFoundError(source)
        return str(copy(source, target, **more))

    monkeypatch.setattr(shutil, "copyfile", copied_unless_gone)
    cache = tenant_cache(tmp_path / "home", "me")
    assert [path.name for path in (cache / "gpubloom").iterdir()] == ["adamw.so"]


@pytest.mark.parametrize(("days", "stays"), [(29, True), (31, False)])
def test_the_cache_of_a_tenant_who_starts_no_job_for_30_days_is_removed(
    machine: Machine, days: float, stays: bool
) -> None:
    folder = _cache(machine, machine.user.id, days=days)
    clear_away(machine.settings)
    assert folder.exists() is stays
    assert [path.name for path in folder.parent.iterdir()] == ([folder.name] if stays else [])


def test_a_job_that_starts_counts_as_use(machine: Machine) -> None:
    folder = _cache(machine, machine.user.id, days=31)
    tenant_cache(machine.settings.home, str(machine.user.id))
    clear_away(machine.settings)
    assert folder.exists()


@pytest.mark.parametrize(("status", "stays"), [("running", True), ("completed", False)])
def test_the_cache_of_a_running_job_stays_however_old(machine: Machine, status: str, stays: bool) -> None:
    job = machine.job(machine.add_job())
    machine.installation.change(job, status=status)
    folder = _cache(machine, job.user_id, days=31)
    clear_away(machine.settings)
    assert folder.exists() is stays
    # The days count from the end of the job.
    machine.installation.change(machine.job(job.id), status="completed")
    clear_away(machine.settings)
    assert folder.exists() is stays


@pytest.mark.parametrize(("days", "stays"), [(0.9, True), (1.1, False)])
def test_the_cache_of_a_tenant_who_is_gone_is_removed_after_a_day(
    machine: Machine, days: float, stays: bool
) -> None:
    folder = _cache(machine, uuid4(), days=days)
    clear_away(machine.settings)
    assert folder.exists() is stays


def test_folders_that_no_job_reads_any_more_are_removed_between_jobs(machine: Machine) -> None:
    job = machine.job(machine.add_job())
    folder = _cache(machine, job.user_id, days=0)
    former = [_file(folder / name / "programs-a" / "program") for name in ("inductor", "triton")]
    machine.installation.change(job, status="running")
    clear_away(machine.settings)
    assert all(path.exists() for path in former)
    machine.installation.change(machine.job(job.id), status="completed")
    clear_away(machine.settings)
    assert [path.name for path in folder.iterdir()] == ["gpubloom"]
    assert (folder / "gpubloom" / "programs-a" / "program").exists()


def test_links_that_a_job_made_lead_nowhere(machine: Machine, tmp_path: Path) -> None:
    folder = _cache(machine, machine.user.id, days=0)
    theirs = _file(tmp_path / "theirs" / "file")
    (folder / "inductor").symlink_to(theirs.parent)
    (folder / "triton").mkdir()
    (folder / "triton" / "link").symlink_to(theirs.parent)
    clear_away(machine.settings)
    assert not (folder / "triton").exists()
    _age(folder, 31)
    clear_away(machine.settings)
    assert not folder.exists()
    assert theirs.exists()
