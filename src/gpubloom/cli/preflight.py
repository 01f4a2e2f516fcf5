"""The pre-flight of a run on examples: counts before the start, for `bloom finetune` and its plan."""

import atexit
import dataclasses
import shutil
import tempfile
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubloom.cli.output import json_text

if TYPE_CHECKING:
    from rich.console import Console

    from gpubloom.datasets import FilePreflight, Preflight
    from gpubloom.plan import DataConfig, EpochData, TrainConfig

# A larger file is planned by its size: counting it takes longer than a person likes to wait for a start.
_COUNTED_BYTES = 64_000_000
_SIGNS = {"critical": "✗", "warning": "!", "info": "·"}


def preflight_of(config: "TrainConfig") -> "Preflight":
    """What the run would train on; InputError says why it could not start."""
    return _counted_for(config)[0]


def hand_over(config: "TrainConfig", run_dir: Path) -> None:
    """Gives the tokens that were counted to the run, which would tokenize the same rows again."""
    from gpubloom.datasets.token_files import move_tokens
    from gpubloom.plan.run_files import EXAMPLES_FOLDER

    tokens = _counted_for(config)[1] if _is_counted(config.data) else None
    if tokens is not None:
        _counted.cache_clear()
        move_tokens(tokens, run_dir / EXAMPLES_FOLDER)


def _counted_for(config: "TrainConfig") -> "tuple[Preflight, Path | None]":
    model = config.model
    return _counted(
        config.data.model_dump_json(), config.context_length, model.rope_scaling, model.rope_factor
    )


@lru_cache(1)
def _counted(
    data_json: str, context_length: int, rope: str | None, rope_factor: float | None
) -> "tuple[Preflight, Path | None]":
    """The pre-flight, and the folder of the tokens that it counted."""
    from gpubloom.datasets import ModelFiles, ReadingOptions, RopeScaling, example_files, preflight
    from gpubloom.datasets.token_files import examples_key, write_tokens
    from gpubloom.plan import DataConfig

    data = DataConfig.model_validate_json(data_json)
    assert data.tokenizer.path is not None
    train, evaluation = example_files(data)
    options = ReadingOptions.of(data, context_length)
    tokenizer = Path(data.tokenizer.path)
    model = ModelFiles.load(tokenizer, data.template_name)
    scaling = None if rope is None else RopeScaling(rope, rope_factor)
    count = partial(preflight, train, evaluation, options, model, packing=data.packing, rope=scaling)
    if not _is_counted(data):
        return count(), None
    try:
        folder = Path(tempfile.mkdtemp(prefix="bloom-examples-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        key = examples_key(train, evaluation, options, tokenizer, data.template_name)
        return count(reader=partial(write_tokens, folder, key)), folder
    except OSError:
        # No room for temporary files; the run writes its own.
        return count(), None


def epoch_data(config: "TrainConfig") -> "EpochData":
    """The data of an epoch for the plan: counted where that is quick, else estimated from file sizes."""
    from gpubloom.plan import CountedData, estimate_tokens

    # Also says which file is missing or empty.
    estimated = estimate_tokens(config.data)
    if not _is_counted(config.data):
        return estimated
    train = preflight_of(config).train
    return CountedData(train.sequences, train.tokens, config.context_length)


def _is_counted(data: "DataConfig") -> bool:
    if data.kind != "examples" or data.train_path is None or "://" in data.train_path:
        return False
    paths = [data.train_path, *(each.path for each in data.mix)]
    return sum(Path(path).stat().st_size for path in paths) <= _COUNTED_BYTES


def show_preflight(config: "TrainConfig", console: "Console", *, as_json: bool) -> None:
    """Prints the counts and the findings."""
    from gpubloom.plan import detect_hardware, few_steps, processes_on, steps_of

    found = preflight_of(config)
    steps = steps_of(config, found.train.sequences, processes_on(detect_hardware(), config))
    if (few := few_steps(steps)) is not None:
        found = dataclasses.replace(found, findings=(*found.findings, few))
    if as_json:
        fields: dict[str, Any] = {**dataclasses.asdict(found), "steps": steps}
        fields["findings"] = [finding.as_dict() for finding in found.findings]
        console.print(json_text(fields), soft_wrap=True)
        return
    for line in _lines(found, config, steps):
        console.print(line, soft_wrap=True)


def show_findings(config: "TrainConfig", console: "Console") -> None:
    """Prints what the run itself does not say about its data, if the run was counted."""
    from gpubloom.traincard.findings import OF_DATA
    from gpubloom.traincard.lines import finding_line

    if not _is_counted(config.data):
        return
    for finding in preflight_of(config).findings:
        if finding.kind not in OF_DATA and finding.kind != "few_rows_used":
            console.print(finding_line(finding.severity, finding.text), soft_wrap=True)


def _lines(found: "Preflight", config: "TrainConfig", steps: int) -> list[str]:
    train, held = found.train, found.eval
    lines = [_file_line(found.train_file)]
    if found.mixed_files:
        trained = (found.train_file, *found.mixed_files)
        lines = [f"{_file_line(file)} {_share(file, train.tokens)}" for file in trained]
    if found.eval_file is not None:
        lines.append(_file_line(found.eval_file))
    held_out = "none" if held is None else f"{held.examples:,} examples, {held.tokens:,} tokens"
    return [
        *lines,
        f"Training: {train.examples:,} examples, {train.tokens:,} tokens, {train.trained_tokens:,} of them "
        f"trained, in {train.sequences:,} sequences of {found.sequence_length:,} tokens.",
        f"Evaluation: {held_out}.",
        f"Steps: {steps:,} ({'max_steps' if steps == config.max_steps else f'{config.epochs} epochs'}).",
        f"Truncated: {found.truncated_share:.1%} of the examples. Longest: {train.longest:,} tokens.",
        *(["", "Findings"] if found.findings else []),
        *(f"{_SIGNS[finding.severity]} {finding.text}" for finding in found.findings),
    ]


def _share(file: "FilePreflight", tokens: int) -> str:
    return (
        f"Weight {file.weight:g}: {file.train_examples:,} examples per epoch, "
        f"{file.train_tokens / tokens:.1%} of the tokens."
    )


def _file_line(file: "FilePreflight") -> str:
    rejected = (
        f", {file.rejected_by_template:,} rejected by the chat template" if file.rejected_by_template else ""
    )
    return f"{file.name}: {file.used:,} of {file.rows:,} rows can be used{rejected}."
