"""What a model is evaluated on: the part of its run's data that was not trained on, or a file."""

from dataclasses import dataclass
from pathlib import Path

from gpubloom.datasets.plugged import plugged_suffixes
from gpubloom.engine.checkpoint import checkpoint_folder, list_checkpoints
from gpubloom.engine.checkpoint.folders import PROGRESS_FILE
from gpubloom.engine.data import Dataset, Rows
from gpubloom.engine.export import TOKENIZER_FILE
from gpubloom.engine.serving.resolved_model import ResolvedModel
from gpubloom.plan import DataConfig, TokenizerConfig
from gpubloom.plan.config import TrainConfig, read_json

_EXAMPLE_SUFFIXES = {".jsonl", ".json", ".csv", ".tsv", ".parquet"}
_BATCH_SIZE = 8
# Where no run says how long a row is.
_LONGEST_ROW = 1_024


@dataclass(frozen=True)
class HeldOut:
    """Rows, how many make a batch, and what a person should know about them."""

    rows: Rows
    batch_size: int
    notes: tuple[str, ...]


def open_held_out(found: ResolvedModel, data_path: str | None, context_length: int) -> HeldOut | str:
    """The rows to evaluate on, rendered and masked as in training; or a sentence: why there are none.

    `context_length` is the model's: rows are no longer.
    """
    if data_path is not None:
        return _of_file(found, data_path, context_length)
    if found.config is None or found.run_dir is None:
        return "No run belongs to this model, so there is no held-out data: name a file to evaluate on."
    return _of_run(found, found.config, found.run_dir)


def _of_run(found: ResolvedModel, config: TrainConfig, run_dir: Path) -> HeldOut | str:
    data = _with_own_tokenizer(found, config.data)
    try:
        dataset = Dataset.open(data, config.context_length)
    except ValueError as problem:
        return f"The run's held-out data cannot be read: {problem} Name a file to evaluate on."
    if dataset.eval is None:
        return "The run kept nothing for evaluation: name a file to evaluate on."
    notes = dataset.notes
    fingerprint = _fingerprint(checkpoint_folder(config, run_dir))
    if fingerprint is not None and fingerprint != dataset.fingerprint():
        notes += (
            "The data changed since the run was trained: what is held out now may have been trained on.",
        )
    return HeldOut(dataset.eval, config.batch_size, notes)


def _of_file(found: ResolvedModel, data_path: str, context_length: int) -> HeldOut:
    file, config = Path(data_path), found.config
    asked = DataConfig() if config is None else config.data
    is_table = file.suffix.lower() in {*_EXAMPLE_SUFFIXES, *plugged_suffixes()}
    kind = "examples" if is_table or (asked.kind == "examples" and file.suffix == ".txt") else "text"
    data = asked.model_copy(
        update={"kind": kind, "train_path": data_path, "eval_path": None, "eval_fraction": 0.0}
    )
    length = min(context_length, _LONGEST_ROW if config is None else config.context_length)
    dataset = Dataset.open(_with_own_tokenizer(found, data), length)
    return HeldOut(dataset.train, _BATCH_SIZE if config is None else config.batch_size, dataset.notes)


def _with_own_tokenizer(found: ResolvedModel, data: DataConfig) -> DataConfig:
    """The tokenizer that lies beside the weights; a BPE that the run trained need not be trained again."""
    named = data.tokenizer.path
    if named is not None and Path(named).is_file():
        return data
    own = found.file(TOKENIZER_FILE)
    if own is None:
        raise ValueError(f"{found.folder} has no {TOKENIZER_FILE}: nothing can be evaluated on it.")
    return data.model_copy(update={"tokenizer": TokenizerConfig(kind="file", path=str(own))})


def _fingerprint(checkpoints: Path) -> str | None:
    saved = list_checkpoints(checkpoints)
    if not saved:
        return None
    found = read_json(saved[-1] / PROGRESS_FILE).get("data_fingerprint")
    return found if isinstance(found, str) else None
