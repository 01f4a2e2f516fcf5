"""A model folder of any family, or an adapter and its base, ready to generate: transformers computes it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from gpubloom.engine.adapters_on_disk import CONFIG_FILE, Adapter, read_adapter
from gpubloom.engine.models.lora import is_transposed

# Where a config does not say how far positions reach.
_CONTEXT_LENGTH = 2_048


class Remembered:
    """Keys and values of the positions seen so far, of all layers."""

    def __init__(self, cache: Any) -> None:
        self.cache = cache

    @property
    def length(self) -> int:
        return int(self.cache.get_seq_length())


class PretrainedText:
    """A causal language model of transformers, as `generate` asks for it."""

    def __init__(self, model: nn.Module) -> None:
        self._model = cast(Any, model.eval())
        settings = self._model.config.get_text_config()
        self.context_length: int = getattr(settings, "max_position_embeddings", None) or _CONTEXT_LENGTH

    def parameters(self) -> Iterator[nn.Parameter]:
        found: Iterator[nn.Parameter] = self._model.parameters()
        return found

    def new_cache(self) -> list[Remembered]:
        from transformers import DynamicCache

        return [Remembered(DynamicCache(config=self._model.config))]

    def __call__(self, tokens_BT: Tensor, cache: list[Remembered]) -> Tensor:
        found = self._model(input_ids=tokens_BT, past_key_values=cache[0].cache, use_cache=True)
        return cast(Tensor, found.logits)


def load_pretrained_text(folder: Path) -> PretrainedText:
    """The model of a folder; of an adapter's folder, the base it names with the adapter's changes."""
    if not (folder / CONFIG_FILE).is_file():
        return PretrainedText(_load(folder))
    adapter = read_adapter(folder)
    if adapter.base_model is None:
        raise ValueError(f"{folder} holds adapters, but does not say which model they belong to.")
    model = _load(Path(adapter.base_model))
    _merge(model, adapter)
    return PretrainedText(model)


def _load(folder: Path) -> nn.Module:
    if not folder.is_dir():
        raise ValueError(
            f"There is no model folder {folder}: put it back to sample from what was trained on it."
        )
    # transformers takes seconds to load, which a run of a preset must not pay.
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    # What it draws would stand in the middle of the text.
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    except OSError as problem:
        raise ValueError(f"{folder} cannot be read: {problem}") from None
    return cast(nn.Module, model)


@torch.no_grad()
def _merge(model: nn.Module, adapter: Adapter) -> None:
    for name, a in adapter.tensors.items():
        path, is_first, _ = name.partition(".lora_A.weight")
        if is_first:
            change = adapter.settings.scale * (adapter.tensors[f"{path}.lora_B.weight"].float() @ a.float())
            module = model.get_submodule(path)
            cast(Tensor, module.weight).add_(change.T if is_transposed(module) else change)
