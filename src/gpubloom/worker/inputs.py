"""A training's data and model as part of its run directory, so that they travel with it.

Files are linked where that is possible, not copied. What comes back from another machine can never be
written to them (`storage.applying`), so the originals stay as they are.
"""

import os
import shutil
from pathlib import Path
from typing import Any

from gpubloom.plan import find_files

INPUTS = "inputs"


def stage_inputs(run_dir: Path, config: dict[str, Any]) -> dict[str, Any]:
    """The config with paths that hold wherever the run directory lies. ValueError, OSError: a file is gone.

    The same config gives the same result, so a later attempt finds everything in place.
    """
    data, model = dict(config.get("data") or {}), dict(config.get("model") or {})
    tokenizer = dict(data.get("tokenizer") or {})
    if model.get("path"):
        if tokenizer.get("path") and Path(tokenizer["path"]).is_relative_to(model["path"]):
            inside = Path(tokenizer["path"]).relative_to(model["path"])
            tokenizer["path"] = str(Path(INPUTS, "model", inside))
        model["path"] = _bring(run_dir, "model", str(model["path"]))
    if tokenizer.get("path") and not str(tokenizer["path"]).startswith(f"{INPUTS}/"):
        tokenizer["path"] = _bring(run_dir, "tokenizer", str(tokenizer["path"]))
    for name in ("train_path", "eval_path"):
        if data.get(name):
            data[name] = _bring(run_dir, name.removesuffix("_path"), str(data[name]))
    if tokenizer:
        data["tokenizer"] = tokenizer
    return {**config, "data": data, **({"model": model} if model else {})}


def _bring(run_dir: Path, name: str, path: str) -> str:
    """A file, folder or pattern under `inputs/<name>`; its path from the run directory."""
    files = find_files(path)
    if not files:
        raise ValueError(f"There are no files in {path}.")
    is_file = Path(path).expanduser().is_file()
    top = files[0].parent if is_file else _top_of(files, path)
    link_name = Path(INPUTS, name)
    for file in files:
        _link(file, run_dir / link_name / file.relative_to(top))
    return str(link_name / files[0].name) if is_file else str(link_name)


def _top_of(files: list[Path], path: str) -> Path:
    folder = Path(path).expanduser()
    return folder if folder.is_dir() else Path(os.path.commonpath([file.parent for file in files]))


def _link(source: Path, target: Path) -> None:
    real = source.resolve(strict=True)
    if target.exists() and target.stat().st_size == real.stat().st_size:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        os.link(real, target)
    except OSError:
        # Another disk.
        shutil.copyfile(real, target)
