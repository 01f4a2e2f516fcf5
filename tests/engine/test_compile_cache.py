"""The folder of compiled programs: one per version, the tenant's where there is one, removed when unused."""

import functools
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from gpubloom.engine.compile_cache import compile_program, use_compile_cache

_CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    # Set first, so that it is taken back after the test.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")


def test_programs_are_kept_in_the_users_cache_and_asking_twice_gives_one_folder(tmp_path: Path) -> None:
    folder = use_compile_cache(_CPU)
    assert folder is not None
    assert folder.parent == tmp_path / "gpubloom"
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(folder)
    assert use_compile_cache(_CPU) == folder


def test_a_tenants_folder_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "tenant"))
    folder = use_compile_cache(_CPU)
    assert folder is not None
    assert folder.parent == tmp_path / "tenant"


def test_a_folder_that_nobody_used_for_long_is_removed(tmp_path: Path) -> None:
    long_ago = time.time() - 31 * 86_400
    for name, used in (("programs-old", long_ago), ("programs-new", time.time()), ("others", long_ago)):
        folder = tmp_path / "gpubloom" / name
        folder.mkdir(parents=True)
        (folder / "last-used").touch()
        os.utime(folder / "last-used", (used, used))
    kept = use_compile_cache(_CPU)
    assert kept is not None
    left = {path.name for path in (tmp_path / "gpubloom").iterdir()}
    assert left == {"programs-new", "others", kept.name}


@pytest.mark.long
def test_a_second_process_finds_what_the_first_compiled() -> None:
    program = """
import torch
from gpubloom.engine.compile_cache import compile_program, use_compile_cache
use_compile_cache(torch.device("cpu"))
from torch._dynamo.utils import counters
torch.compile(lambda x: (x * 2).sin() + 1)(torch.ones(8))
print(counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"])
"""
    hits = [
        int(
            subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        )
        for _ in range(2)
    ]
    assert hits[0] == 0
    assert hits[1] > 0


def test_a_function_may_be_compiled_for_more_shapes_than_torch_allows_by_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All layers of a model are one function to torch: each kind, shape and placement is a program of it."""
    import torch._dynamo

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    torch._dynamo.reset()
    # Puts back what was set; monkeypatch would delete it, for all later tests of the process.
    with torch._dynamo.config.patch(recompile_limit=8):
        program = compile_program(lambda x: x + 1)
        for size in range(2, 2 + 2 * 8):
            assert len(program(torch.zeros(size))) == size
    assert torch._dynamo.config.recompile_limit
