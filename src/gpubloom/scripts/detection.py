"""`detect`: what a script needs, from its text alone."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpubloom.scripts.data_used import datasets
from gpubloom.scripts.estimates import Estimate, Work, estimate, reference_gpu
from gpubloom.scripts.hub_downloads import hub_datasets, hub_models
from gpubloom.scripts.machines import gpus, interactive, multi_node, parallelism, uses_gpu
from gpubloom.scripts.model_size import ModelSize, model_size
from gpubloom.scripts.notebooks import MOST_NOTEBOOK_CHARACTERS
from gpubloom.scripts.packages import frameworks, packages
from gpubloom.scripts.requirements import Detected, Requirements, ScriptProblem, StatedDuration
from gpubloom.scripts.saving import checkpoints, trackers, writes_tensorboard
from gpubloom.scripts.script import Script
from gpubloom.scripts.source import MOST_CHARACTERS
from gpubloom.scripts.stated import stated_duration, stated_hours, stated_memory, stated_training
from gpubloom.scripts.workload import (
    accumulation,
    batch,
    dtype,
    epochs,
    hf_arguments,
    iterations,
    method,
    purpose,
    sequence,
)

_SHARDING = {"fsdp", "deepspeed"}
_MOST_SIBLINGS = 30
_SMALL_IMAGES = {
    "cifar10": 32,
    "cifar100": 32,
    "mnist": 28,
    "fashionmnist": 28,
    "fashion_mnist": 28,
    "svhn": 32,
}


def detect(
    source: str | Path, *, files: Mapping[str, str] | None = None, arguments: Sequence[str] = ()
) -> Requirements:
    """What a script or a notebook needs. It is read, never run.

    `source` is its text, or its path: then the modules that it imports from its own folder are read as well,
    and what `arguments` names there. `files` are texts by name, beside the script. `arguments` is its command
    line. ScriptProblem: it cannot be read.
    """
    siblings, title = dict(files or {}), "The script"
    if isinstance(source, Path):
        text, title = read_text(source), str(source)
        siblings = _siblings(source, text, arguments) | siblings
    else:
        text = source
    script = Script(text, siblings, arguments, title)
    return _requirements(script)


def read_text(path: Path) -> str:
    """The text of a script or notebook. ScriptProblem: there is none to read."""
    most = MOST_NOTEBOOK_CHARACTERS if path.suffix == ".ipynb" else MOST_CHARACTERS
    try:
        if path.stat().st_size > 4 * most:
            raise ScriptProblem(
                "script_too_large",
                f"{path} has {path.stat().st_size:,} bytes, which is too large for a script.",
            )
        return path.read_text(encoding="utf-8")
    except IsADirectoryError:
        raise ScriptProblem("unreadable_file", f"{path} is a folder: name the script in it.") from None
    except OSError as problem:
        raise ScriptProblem("unreadable_file", f"{path} cannot be read: {problem.strerror}.") from None
    except UnicodeDecodeError:
        raise ScriptProblem("not_utf8", f"{path} is not UTF-8 text.") from None


def _requirements(script: Script) -> Requirements:
    needed, ways, what = uses_gpu(script), parallelism(script), purpose(script)
    if what.value == "other":
        what = stated_training(script) or what
    count, sets, how = gpus(script, needed), datasets(script), method(script)
    size = _at_image_size(script, model_size(script), sets)
    rows = _sensible(script, batch(script), "batch size", 1e6)
    length = _sensible(script, sequence(script), "sequence length", 1e7)
    micro = _sensible(script, accumulation(script), "number of micro-batches", 1e6)
    steps = _sensible(script, iterations(script), "number of steps", 1e12)
    passes = _sensible(script, epochs(script), "number of epochs", 1e7)
    numbers = dtype(script)
    trains = what.value == "train"
    work = Work(
        size=size,
        trains=trains,
        on_gpu=count.value > 0,
        method=how.value if how is not None else "full",
        rank=_rank(script),
        dtype=numbers,
        batch=rows,
        accumulation=micro,
        sequence=length,
        iterations=steps,
        epochs=passes,
        datasets=sets,
        gpus=count,
        # One model over several GPUs: by what divides it, or because it only answers.
        sharded=not trains or any(way.value.partition("_")[0] in _SHARDING for way in ways),
        recomputes=_recomputes(script),
        compiled=any(True for _ in script.calls_of("torch.compile")),
    )
    duration = _fitting(
        script, stated_duration(script, passes, on_gpu=count.value > 0), count.value, several=bool(ways)
    )
    if duration is not None and duration.value.gpus and count.confidence == "assumed":
        count = Detected(value=duration.value.gpus, confidence="stated", evidence=duration.evidence)
        work = replace(work, gpus=count)
    found = _with_statements(estimate(work), work, duration, stated_memory(script))
    if trains and how is None and size.parameters is not None:
        how = Detected(value="full", confidence="derived", reason="The script uses no adapters.")
    return Requirements(
        purpose=what,
        frameworks=frameworks(script),
        packages=packages(script),
        models=size.names,
        datasets=sets,
        hub_models=hub_models(script),
        hub_datasets=hub_datasets(script),
        trackers=trackers(script),
        parallelism=ways,
        method=how,
        parameters=size.parameters,
        batch=rows,
        accumulation=micro,
        sequence=length,
        dtype=numbers,
        iterations=found.iterations,
        epochs=passes,
        gpus=found.gpus,
        multi_node=multi_node(script),
        interactive=interactive(script),
        gpu_memory_gb=found.memory_gb,
        duration_hours=found.hours,
        stated_duration=duration,
        reference_gpu=found.reference,
        operations=found.operations,
        checkpoints=checkpoints(script),
        writes_tensorboard=writes_tensorboard(script),
        notes=tuple(script.notes),
    )


def _fitting(
    script: Script, stated: Detected[StatedDuration] | None, gpus: int, *, several: bool
) -> Detected[StatedDuration] | None:
    """Hours on several GPUs say nothing about a script that uses another number of them."""
    if stated is None or stated.value.gpus in {None, max(1, gpus)}:
        return stated
    if several and gpus <= 1:
        return stated
    script.notes.append(
        f"The duration in line {stated.evidence[0].line} is for {stated.value.gpus} GPUs and was ignored: "
        f"the script uses {max(1, gpus)}."
    )
    return None


def _with_statements(
    found: Estimate,
    work: Work,
    duration: Detected[StatedDuration] | None,
    memory: Detected[float] | None,
) -> Estimate:
    """What comments state, in place of rules of thumb. Memory that was computed is the better figure."""
    if memory is not None and work.on_gpu and found.memory_gb.confidence == "assumed":
        # People state what is printed on the box; a driver leaves a little less.
        found = replace(found, memory_gb=memory, reference=reference_gpu(0.95 * memory.value, work.dtype))
    if duration is not None:
        gpu = duration.value.gpu if work.on_gpu else None
        found = replace(found, hours=stated_hours(duration), reference=gpu or found.reference)
    return found


def _sensible(script: Script, found: Detected[int] | None, what: str, most: float) -> Detected[int] | None:
    if found is None or found.value <= most:
        return found
    script.notes.append(
        f"The {what} of {found.value:,} in line {found.evidence[0].line} is implausible and was ignored."
    )
    return None


def _at_image_size(script: Script, size: ModelSize, sets: tuple[Detected[str], ...]) -> ModelSize:
    """Image models are known by what they do with 224 pixels; small pictures cost less."""
    known = [_SMALL_IMAGES[name] for each in sets if (name := each.value.casefold()) in _SMALL_IMAGES]
    resized = any(True for _ in script.calls("Resize", "RandomResizedCrop", "resize", "Resizing"))
    if not known or resized or size.operations is None:
        return size
    return replace(size, operations=size.operations * (known[0] / 224) ** 2)


def _rank(script: Script) -> int:
    for call in script.calls("LoraConfig", "get_peft_model"):
        known = script.keyword(call, "r")
        if known is not None and isinstance(known.value, int) and 0 < known.value <= 4_096:
            return known.value
    return 16


def _recomputes(script: Script) -> bool:
    if any(True for _ in script.calls("gradient_checkpointing_enable", "enable_gradient_checkpointing")):
        return True
    some = [*hf_arguments(script), *script.calls("get_peft_model")]
    known: Any = [
        script.keyword(call, "gradient_checkpointing", "use_gradient_checkpointing") for call in some
    ]
    return any(each is not None and bool(each.value) for each in known)


def _siblings(path: Path, text: str, arguments: Sequence[str]) -> dict[str, str]:
    """What a script brings along: modules that it imports from its folder, configs on its command line."""
    try:
        main = Script(text, {}, ()).main
    except ScriptProblem:
        return {}
    names = [f"{module}.py" for module in [*main.packages, *main.local_imports] if module]
    names += [word for word in arguments if word.endswith((".py", ".json")) and not word.startswith("-")]
    names.append("requirements.txt")
    found: dict[str, str] = {}
    for name in names[: 10 * _MOST_SIBLINGS]:
        sibling = path.parent / name
        if len(found) < _MOST_SIBLINGS and sibling != path and sibling.is_file():
            found[name] = read_text(sibling)
    return found
