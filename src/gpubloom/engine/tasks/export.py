"""The task `export`: writes a model in another form, replays prompts before and after, pushes it if asked.

With `average_with` the mean of several checkpoints is exported, and `averaged.json` in the export names them.
A sharded checkpoint is converted to safetensors first.
`model/` in the task's directory is complete or absent. A family that exporting/gguf.py does not write is
converted by llama.cpp's own script, if the operator has installed it.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from gpubloom.engine.converting.averaging import MANIFEST_FILE, average
from gpubloom.engine.exporting.gguf import (
    UnknownTokenizer,
    can_write,
    gguf_tensors,
    what_differs,
    write_gguf,
)
from gpubloom.engine.exporting.layouts import (
    ExportWeights,
    Precision,
    merged_config,
    write_adapter_form,
    write_merged,
)
from gpubloom.engine.exporting.replaying import (
    Replay,
    answers_after,
    answers_before,
    answers_of_gguf,
    choose_prompts,
    compare,
    why_not_replayed,
)
from gpubloom.engine.hardware import Compute, choose_compute
from gpubloom.engine.serving.resolved_model import ResolvedModel, find_model, opened_model
from gpubloom.engine.shards.atomic_folder import complete_or_absent, sync_files
from gpubloom.engine.tasks.session import TaskSession
from gpubloom.errors import InputError
from gpubloom.plan.gguf_support import CONVERTER_VARIABLE, find_converter, why_no_gguf
from gpubloom.plan.tasks import TOKEN_FILE, ExportTask, Task

_OUT_TYPES: dict[Precision, str] = {"fp32": "f32", "fp16": "f16", "bf16": "bf16"}
_LAST_WORDS = 400

_GGUF_FILE = "model.gguf"
_WEIGHTS_FOLDER = "weights"
_QLORA_NOTE = (
    "The adapter was trained on 4-bit weights and is merged into the unquantized weights, so answers may "
    "differ a little from the answers before the export."
)


def convert(
    converter: Path,
    merged: Path,
    target: Path,
    precision: Precision,
    keep_going: Callable[[], None],
    name: str | None = None,
) -> None:
    """Runs the converter on a merged model folder; ValueError with its last words when it fails."""
    command = [sys.executable, str(converter), str(merged), "--outfile", str(target)]
    log = target.with_suffix(".log")
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, "--outtype", _OUT_TYPES[precision], *(["--model-name", name] if name else [])],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            while process.poll() is None:
                keep_going()
                time.sleep(0.1)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
    said = log.read_text(encoding="utf-8", errors="replace").strip()[-_LAST_WORDS:]
    log.unlink()
    if process.returncode != 0 or not target.is_file():
        raise InputError(
            "converter_failed", f"{converter} failed: {said or f'exit status {process.returncode}'}"
        )


def run(task: Task, session: TaskSession) -> dict[str, Any]:
    """Exports; the answer says which files there are and how the replay went."""
    task = cast(ExportTask, task)
    token = take_token(session.home)
    if task.hub is not None and token is None:
        raise InputError(
            "no_hub_token",
            f"Pushing to {task.hub.repository} needs a Hugging Face token with write access: set HF_TOKEN.",
        )
    compute = choose_compute(task.device, "auto")
    target = session.home / "model"
    # What an earlier attempt at this task left.
    shutil.rmtree(target, ignore_errors=True)
    with _opened(task, session) as found, complete_or_absent(target) as folder:
        session.reporter.phase("export")
        notes = [*found.notes, *_write(folder, task, found, session)]
        if task.average_with:
            shutil.copyfile(found.folder / MANIFEST_FILE, folder / MANIFEST_FILE)
        checksums = sync_files(folder, {})
        session.reporter.phase("replay")
        replay = _replay(folder, task, found, compute, session)
    files = [
        {"path": name, "size": (target / name).stat().st_size, "sha256": checksum}
        for name, checksum in sorted(checksums.items())
    ]
    return {
        "form": task.form,
        "dtype": task.dtype,
        "files": files,
        "bytes": sum(int(str(file["size"])) for file in files),
        **replay.to_json(),
        "hub": _push(target, task, token, session),
        "notes": [*notes, *replay.notes],
    }


@contextmanager
def _opened(task: ExportTask, session: TaskSession) -> Iterator[ResolvedModel]:
    """The model to export.

    The mean of several checkpoints, or a sharded checkpoint as safetensors, lies beside the export only until
    that is done.
    """
    path, base = Path(task.model), None if task.base is None else Path(task.base)
    weights = session.home / _WEIGHTS_FOLDER
    if not task.average_with:
        with opened_model(path, base, copy=weights) as found:
            yield found
        return
    shutil.rmtree(weights, ignore_errors=True)
    try:
        session.reporter.phase("average")
        written = average([path, *map(Path, task.average_with)], weights, session.keep_going)
        names = ", ".join(written.sources)
        note = f"The weights are the mean of {names}. {MANIFEST_FILE} has their sha256."
        found = find_model(path, base, weights=weights)
        yield replace(found, notes=(*found.notes, note))
    finally:
        shutil.rmtree(weights, ignore_errors=True)


def take_token(home: Path) -> str | None:
    """The hub's token: from the file that was left for this task, which is deleted, else from HF_TOKEN."""
    file = home / TOKEN_FILE
    try:
        token = file.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return os.environ.get("HF_TOKEN") or None
    file.unlink()
    return token or None


def _write(folder: Path, task: ExportTask, found: ResolvedModel, session: TaskSession) -> list[str]:
    if task.form == "adapter":
        return list(write_adapter_form(folder, found, task.dtype))
    notes = [_QLORA_NOTE] if found.four_bit else []
    if task.form == "merged":
        write_merged(folder, found, task.dtype, session.keep_going)
        return notes
    _must_have_gguf()
    return notes + _write_gguf(folder, task, found, session)


def _write_gguf(folder: Path, task: ExportTask, found: ResolvedModel, session: TaskSession) -> list[str]:
    config = merged_config(found, task.dtype)
    if (refusal := why_no_gguf(config)) is not None:
        raise InputError("unsupported_by_gguf", refusal)
    reason = None
    if can_write(found):
        try:
            write_gguf(folder / _GGUF_FILE, found, task.dtype, session.keep_going, task.name)
        except UnknownTokenizer as problem:
            reason = str(problem)
        else:
            return what_differs(found)
    converter = find_converter()
    if converter is None:
        raise InputError(
            "unsupported_by_gguf",
            f"{reason} For other tokenizers, set {CONVERTER_VARIABLE} to llama.cpp's convert_hf_to_gguf.py, "
            "or put that script on the PATH.",
        )
    merged = folder / "merged"
    merged.mkdir()
    write_merged(merged, found, task.dtype, session.keep_going)
    convert(converter, merged, folder / _GGUF_FILE, task.dtype, session.keep_going, task.name)
    shutil.rmtree(merged)
    return [f"{converter.name} wrote the GGUF file."]


def _replay(
    folder: Path, task: ExportTask, found: ResolvedModel, compute: Compute, session: TaskSession
) -> Replay:
    prompts = choose_prompts(task.prompts, found)
    if (reason := why_not_replayed(found, compute)) is not None:
        return Replay(notes=[reason])
    go_on = session.keep_going
    if task.form != "gguf":
        before = answers_before(found, prompts, compute, go_on)
        return compare(prompts, before, answers_after(folder, found, prompts, compute, go_on))
    if not can_write(found):
        return Replay(
            notes=[
                "Another program wrote the GGUF file, so the answers before and after the export were not "
                "compared."
            ]
        )
    planned = gguf_tensors(ExportWeights.of(found), merged_config(found, task.dtype))
    before = answers_before(found, prompts, compute, go_on)
    after = answers_of_gguf(folder / _GGUF_FILE, planned, found, prompts, compute, go_on)
    return compare(prompts, before, after)


def _push(target: Path, task: ExportTask, token: str | None, session: TaskSession) -> dict[str, str] | None:
    if task.hub is None:
        return None
    from gpubloom.hub.pushing import push_folder

    session.reporter.phase("push")
    session.keep_going()
    pushed = push_folder(target, task.hub.repository, private=task.hub.private, token=token)
    return {"repository": pushed.repository, "url": pushed.url, "revision": pushed.revision}


def _must_have_gguf() -> None:
    import importlib.util

    if importlib.util.find_spec("gguf") is None:
        raise InputError(
            "not_installed",
            "GGUF export needs the package gguf, which is not installed. Run: pip install 'gpubloom[gguf]'.",
        )
