"""Perplexity of a model on held-out data: the part of its run's data that was not trained on, or a file.

Only the tokens that are trained count. A document is computed by itself, as it is seen in training, where
attention stays inside it. Documents of similar length share a pass, padded behind: what stands behind a
position cannot change it.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gpubloom.datasets.remote_data import is_remote
from gpubloom.datasets.source import plugged_suffixes
from gpubloom.engine.checkpoint import checkpoint_folder, list_checkpoints
from gpubloom.engine.checkpoint.format import PROGRESS_FILE
from gpubloom.engine.data import Batch, Dataset, Rows
from gpubloom.engine.data.rows import IGNORED
from gpubloom.engine.generate import TextModel
from gpubloom.engine.llama_folder import TOKENIZER_FILE
from gpubloom.engine.loss import summed_cross_entropy
from gpubloom.engine.serving.resolved_model import ResolvedModel
from gpubloom.errors import InputError
from gpubloom.json_files import read_json
from gpubloom.plan import DataConfig, TokenizerConfig
from gpubloom.plan.config import TrainConfig

_EXAMPLE_SUFFIXES = {".jsonl", ".json", ".csv", ".tsv", ".parquet", ".gz", ".zst", ".zip"}
_BATCH_SIZE = 8
# Where no run says how long a row is.
_LONGEST_ROW = 1_024

# Logits of a pass are the largest thing in memory besides the weights: so many numbers at most.
_MOST_LOGITS = 1 << 26


@dataclass(frozen=True)
class HeldOut:
    """Rows, how many make a batch, and what a person should know about them."""

    rows: Rows
    batch_size: int
    notes: tuple[str, ...]


def open_held_out(
    found: ResolvedModel, data_path: str | None, context_length: int, *, fetches: bool = True
) -> HeldOut | str:
    """The rows to evaluate on, rendered and masked as in training; or a sentence: why there are none.

    `context_length` is the model's: rows are no longer. `fetches`: whether an address in the run's config is
    followed; its owner may be another than who runs this process.
    """
    if data_path is not None:
        return _of_file(found, data_path, context_length)
    if found.config is None or found.run_dir is None:
        return (
            "This model does not come from a run, so it has no held-out data: choose a file to evaluate on."
        )
    addresses = filter(is_remote, (found.config.data.train_path, found.config.data.eval_path))
    if not fetches and (address := next(addresses, None)) is not None:
        return f"The data of the run is at {address}. To evaluate on it, enter this address as the data."
    return _of_run(found, found.config, found.run_dir)


def _of_run(found: ResolvedModel, config: TrainConfig, run_dir: Path) -> HeldOut | str:
    data = _with_own_tokenizer(found, _of_folder(config.data, run_dir))
    try:
        dataset = Dataset.open(data, config.context_length)
    except ValueError as problem:
        return f"The held-out data of the run cannot be read: {problem} Choose a file to evaluate on."
    if dataset.eval is None:
        return "The run has no held-out data: choose a file to evaluate on."
    notes = dataset.notes
    fingerprint = _fingerprint(checkpoint_folder(config, run_dir))
    if fingerprint is not None and fingerprint != dataset.fingerprint():
        notes += ("The data changed after the training: the held-out data may contain training data.",)
    return HeldOut(dataset.eval, config.batch_size, notes)


def _of_folder(data: DataConfig, run_dir: Path) -> DataConfig:
    """A run names the data that was fetched or sent for it by its path in the run directory."""

    def absolute(path: str | None) -> str | None:
        return path if path is None or not (run_dir / path).exists() else str(run_dir / path)

    return data.model_copy(
        update={
            "train_path": absolute(data.train_path),
            "eval_path": absolute(data.eval_path),
            "mix": [each.model_copy(update={"path": absolute(each.path)}) for each in data.mix],
        }
    )


def _of_file(found: ResolvedModel, data_path: str, context_length: int) -> HeldOut:
    file, config = Path(data_path), found.config
    asked = DataConfig() if config is None else config.data
    is_table = file.suffix.lower() in {*_EXAMPLE_SUFFIXES, *plugged_suffixes()}
    # A folder, or an address of one, has what the run was trained on.
    same = asked.kind == "examples" and file.suffix in {"", ".txt"}
    kind = "examples" if is_table or same else "text"
    alone: dict[str, Any] = {"eval_path": None, "eval_fraction": 0.0, "mix": [], "weight": 1.0, "name": None}
    data = asked.model_copy(update={"kind": kind, "train_path": data_path, **alone})
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
        raise InputError(
            "no_tokenizer", f"{found.folder} has no {TOKENIZER_FILE}, so the model cannot be evaluated."
        )
    return data.model_copy(update={"tokenizer": TokenizerConfig(kind="file", path=str(own))})


def _fingerprint(checkpoints: Path) -> str | None:
    saved = list_checkpoints(checkpoints)
    if not saved:
        return None
    found = read_json(saved[-1] / PROGRESS_FILE).get("data_fingerprint")
    return found if isinstance(found, str) else None


@dataclass(frozen=True)
class Perplexity:
    """Means over `tokens` trained tokens."""

    loss: float
    perplexity: float
    tokens: int

    def record(self) -> dict[str, float | int | None]:
        """As JSON, which knows no infinity."""
        finite = self.perplexity if math.isfinite(self.perplexity) else None
        return {"loss": self.loss, "perplexity": finite, "tokens": self.tokens}


@dataclass(frozen=True)
class Document:
    """Tokens that are seen together, and what each should be followed by."""

    tokens: Tensor
    targets: Tensor


@torch.inference_mode()
def perplexity(
    model: TextModel, batches: Iterable[Batch], vocab_size: int, between: Callable[[], None] = lambda: None
) -> Perplexity:
    """`between` is called after each batch."""
    loss, tokens = 0.0, 0
    for batch in batches:
        for group in _groups(documents(batch), _MOST_LOGITS // vocab_size):
            loss += _loss(model, group, vocab_size)
            tokens += sum(int((document.targets != IGNORED).sum()) for document in group)
        between()
    if not tokens:
        raise InputError(
            "nothing_to_evaluate", "The evaluation data contains no token that counts in the loss."
        )
    mean = loss / tokens
    # exp overflows long before a loss stops being comparable.
    return Perplexity(mean, math.exp(mean) if mean < 700 else math.inf, tokens)


def documents(batch: Batch) -> Iterator[Document]:
    """The documents of a batch in which something is trained."""
    rows = zip(batch.tokens_ABT.flatten(0, 1), batch.targets_ABT.flatten(0, 1), strict=True)
    numbers_NT = None if batch.documents_ABT is None else batch.documents_ABT.flatten(0, 1)
    for index, (tokens_T, targets_T) in enumerate(rows):
        lengths = [len(tokens_T)]
        if numbers_NT is not None:
            lengths = torch.unique_consecutive(numbers_NT[index], return_counts=True)[1].tolist()
        for tokens, targets in zip(tokens_T.split(lengths), targets_T.split(lengths), strict=True):
            trained = (targets != IGNORED).nonzero()
            if len(trained):
                # What stands behind the last trained target is not needed.
                end = int(trained[-1]) + 1
                yield Document(tokens[:end], targets[:end])


def _groups(found: Iterable[Document], positions: int) -> Iterator[list[Document]]:
    """Documents of similar length, together no more than so many positions."""
    group: list[Document] = []
    for document in sorted(found, key=lambda document: len(document.tokens)):
        if group and (len(group) + 1) * len(document.tokens) > positions:
            yield group
            group = []
        group.append(document)
    if group:
        yield group


def _loss(model: TextModel, group: list[Document], vocab_size: int) -> float:
    device = next(model.parameters()).device
    longest = max(len(document.tokens) for document in group)
    tokens_BT = torch.zeros(len(group), longest, dtype=torch.long)
    targets_BT = torch.full((len(group), longest), IGNORED)
    for row, document in enumerate(group):
        tokens_BT[row, : len(document.tokens)] = document.tokens
        targets_BT[row, : len(document.tokens)] = document.targets
    piece = longest
    if model.reads_in_pieces:
        piece = max(1, min(longest, _MOST_LOGITS // vocab_size // len(group)))
    cache = model.new_cache()
    loss = 0.0
    for start in range(0, longest, piece):
        here = slice(start, start + piece)
        logits_BTV = model(tokens_BT[:, here].to(device), cache)
        targets_N = targets_BT[:, here].to(device).flatten()
        loss += float(summed_cross_entropy(logits_BTV.flatten(0, 1), targets_N))
    return loss
