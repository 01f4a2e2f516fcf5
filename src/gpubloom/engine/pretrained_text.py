"""A model folder of any family, or an adapter and its base, ready to generate: transformers computes it."""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from gpubloom.engine.adapters_on_disk import CONFIG_FILE, BaseNeeded, read_adapter
from gpubloom.engine.hardware import Compute
from gpubloom.engine.serving.four_bit import to_four_bit
from gpubloom.engine.serving.low_rank import attach, tuned
from gpubloom.hub.weight_index import check_model_folder

# Where a config does not say how far positions reach.
_CONTEXT_LENGTH = 2_048

ON_CPU = Compute(torch.device("cpu"), "fp32", "fp32: exact on any machine")


class TransformersCache:
    """Keys and values of the positions seen so far, of all layers."""

    def __init__(self, cache: Any) -> None:
        self.cache = cache

    @property
    def length(self) -> int:
        return int(self.cache.get_seq_length())


class PretrainedText:
    """A causal language model of transformers, as `generate` asks for it; with its adapter or without."""

    reads_in_pieces = True

    def __init__(self, module: Any, *, is_tuned: bool = True) -> None:
        self.module = module.eval()
        self.is_tuned = is_tuned
        settings = self.module.config.get_text_config()
        self.context_length: int = getattr(settings, "max_position_embeddings", None) or _CONTEXT_LENGTH
        self._keeps_some = "logits_to_keep" in inspect.signature(self.module.forward).parameters

    def without_adapter(self) -> "PretrainedText":
        """The base, computed with the same weights."""
        return PretrainedText(self.module, is_tuned=False)

    def parameters(self) -> Iterator[nn.Parameter]:
        found: Iterator[nn.Parameter] = self.module.parameters()
        return found

    def new_cache(self) -> list[TransformersCache]:
        from transformers import DynamicCache

        return [TransformersCache(DynamicCache(config=self.module.config))]

    def __call__(
        self, tokens_BT: Tensor, cache: list[TransformersCache] | None, *, last_only: bool = False
    ) -> Tensor:
        options: dict[str, Any] = {"use_cache": False}
        if cache is not None:
            options = {"use_cache": True, "past_key_values": cache[0].cache}
        if last_only and self._keeps_some:
            # Logits of a long prompt can be larger than the model.
            options["logits_to_keep"] = 1
        with tuned(self.is_tuned):
            found = self.module(input_ids=tokens_BT, **options)
        return cast(Tensor, found.logits)


def load_pretrained_text(
    folder: Path, *, base: Path | None = None, compute: Compute = ON_CPU, four_bit: bool = False
) -> PretrainedText:
    """The model of a folder; of an adapter's folder, the base with the adapter's terms.

    `base` is what a run or a person names, never what the adapter's file says: that could be any folder of
    this machine. `four_bit` computes with a base as QLoRA trained on it.
    """
    if not (folder / CONFIG_FILE).is_file():
        return PretrainedText(_load(folder, compute, four_bit=four_bit))
    adapter = read_adapter(folder)
    if base is None:
        raise BaseNeeded(adapter.base_model)
    model = _load(base, compute, four_bit=four_bit)
    attach(model, adapter, compute.dtype)
    return PretrainedText(model)


def _load(folder: Path, compute: Compute, *, four_bit: bool) -> nn.Module:
    if not folder.is_dir():
        raise ValueError(f"There is no model folder {folder}: put it back to use what was trained on it.")
    # transformers takes seconds to load, which a run of a preset must not pay.
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    check_model_folder(folder)
    # What it draws would stand in the middle of the text.
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder,
            # Four bits are made from the weights as they were saved, as in training.
            dtype="auto" if four_bit else compute.dtype,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
        )
    except (OSError, KeyError) as problem:
        raise ValueError(f"{folder} cannot be read: {problem}") from None
    if four_bit:
        return to_four_bit(model, compute.device, compute.dtype)
    return cast(nn.Module, cast(Any, model).to(compute.device))
