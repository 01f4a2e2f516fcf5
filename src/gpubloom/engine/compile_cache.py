"""Compiled programs, and where torch keeps them between runs, so that a second run does not compile again.

One folder per version of torch, Python and triton and per kind of GPU, in the user's cache; torch itself keys
programs by their graph and shapes. A sandbox names a folder of the job's tenant instead, so that nobody runs
code that another tenant could have written. A folder that no run used for 30 days is removed.
"""

import contextlib
import hashlib
import importlib.metadata
import os
import platform
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from gpubloom.engine.calibrate import cache_folder

_DAYS = 30
_PREFIX = "programs-"
_MARK = "last-used"
# torch counts programs by the function they come from, and all layers of a model come from one. Eight, its
# default, are too few for two kinds of layers, kept and recomputed, in the shapes of training and evaluation.
_MOST_PROGRAMS = 64


def compile_program(function: Callable[..., Any], *, dynamic: bool = False) -> Callable[..., Any]:
    """The function as one program per set of shapes, or of any shapes (`dynamic`); made when it is called."""
    # Loaded here: it brings torch's compiler, which an eager run never pays for.
    import torch._dynamo.config as settings

    settings.recompile_limit = max(settings.recompile_limit, _MOST_PROGRAMS)
    program: Callable[..., Any] = torch.compile(function, dynamic=dynamic, fullgraph=True)
    return program


def use_compile_cache(device: torch.device) -> Path | None:
    """Sets the folder for this process, before anything is compiled; None where nothing can be kept."""
    named = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    root = Path(named) if named else cache_folder()
    if root is None:
        return None
    folder = root if root.name.startswith(_PREFIX) else root / f"{_PREFIX}{_key(device)}"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (folder / _MARK).touch()
    except OSError:
        return None
    _remove_unused(folder.parent)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    os.environ.setdefault("TRITON_CACHE_DIR", str(folder / "triton"))
    return folder


def programs_are_kept(job: str) -> bool:
    """Whether a run has compiled these programs into the folder of this process. `job` names them."""
    return (mark := _mark_of(job)) is not None and mark.is_file()


def note_kept_programs(job: str) -> None:
    """Called when they are compiled."""
    if (mark := _mark_of(job)) is not None:
        # What is not noted is compiled in another process again, where torch finds it at once.
        with contextlib.suppress(OSError):
            mark.touch()


def _mark_of(job: str) -> Path | None:
    folder = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    return None if folder is None else Path(folder) / f"made-{hashlib.sha256(job.encode()).hexdigest()[:32]}"


def _key(device: torch.device) -> str:
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor()
    parts = [torch.__version__, platform.python_version(), _triton_version(), device.type, gpu]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _triton_version() -> str:
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return "none"


def _remove_unused(root: Path) -> None:
    oldest = time.time() - _DAYS * 86_400
    for folder in root.glob(f"{_PREFIX}*"):
        # Another run may remove or use it at the same time.
        with contextlib.suppress(OSError):
            if (folder / _MARK).stat().st_mtime < oldest:
                shutil.rmtree(folder, ignore_errors=True)
