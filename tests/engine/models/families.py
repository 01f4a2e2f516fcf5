"""Tiny models of every family that the engine promises, and transformers' own computation of them."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from gpubloom.engine.models.blocks import BlockModel
from gpubloom.engine.models.hugging_face import HuggingFaceBlocks

VOCABULARY = 97
LENGTH = 12

_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
_SMALL_HEADS = {"head_dim": 8, "query_pre_attn_scalar": 8}
_GPT2_SIZES = {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
_LONG_ROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 4,
    "long_factor": [2.0, 2.5, 3.0, 3.5],
    "factor": 8.0,
}

# name: model type, settings besides the sizes
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama-tied": ("llama", {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True}),
    # A padding token that occurs in `some_tokens`: its row of the embedding gets no gradient.
    "llama-padded": ("llama", {"pad_token_id": 55}),
    "qwen2": ("qwen2", {}),
    "qwen2-mixed": ("qwen2", {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}),
    "qwen3": ("qwen3", {"head_dim": 8, "tie_word_embeddings": True}),
    "mistral": ("mistral", {"sliding_window": 5}),
    "mistral-full": ("mistral", {"sliding_window": None}),
    "gemma": ("gemma", {"head_dim": 8}),
    "gemma2": ("gemma2", {**_SMALL_HEADS, "sliding_window": 5}),
    "gemma3": ("gemma3_text", {**_SMALL_HEADS, "sliding_window": 5, "num_hidden_layers": 7}),
    "phi": ("phi", {}),
    "phi3": ("phi3", {}),
    # Rotates otherwise in a row than in a document by itself: only the row is longer than 8.
    "phi3-long": ("phi3", {"rope_parameters": _LONG_ROPE, "original_max_position_embeddings": 8}),
    "falcon": ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon-7b": ("falcon", {"multi_query": True, "parallel_attn": True}),
    "falcon-sequential": ("falcon", {"multi_query": False, "parallel_attn": False, "bias": True}),
    "gpt2": ("gpt2", _GPT2_SIZES),
    "gpt2-scaled": ("gpt2", {**_GPT2_SIZES, "scale_attn_by_inverse_layer_idx": True}),
    "gpt_neox": ("gpt_neox", {}),
    "gpt_neox-sequential": ("gpt_neox", {"use_parallel_residual": False}),
    "smollm3": ("smollm3", {"num_hidden_layers": 5}),
    "granite": ("granite", {"embedding_multiplier": 3.0, "logits_scaling": 2.0, "residual_multiplier": 0.5}),
    "cohere": ("cohere", {"logit_scale": 0.25}),
    "olmo2": ("olmo2", {}),
    "mixtral": ("mixtral", {"num_local_experts": 4}),
    "qwen3_moe": ("qwen3_moe", {**_EXPERTS, "head_dim": 8}),
}

MIXTURES = ("mixtral", "qwen3_moe")


def config_of(name: str, **changes: Any) -> Any:
    from transformers import AutoConfig

    family, settings = FAMILIES[name]
    return AutoConfig.for_model(family, **{**_SIZES, **settings, **changes})


@cache
def model_of(name: str) -> HuggingFaceBlocks:
    """Made once: a model holds no weights, so no test can change it."""
    return HuggingFaceBlocks(config_of(name))


def reference_of(name: str, precision: torch.dtype = torch.float32, **changes: Any) -> Any:
    """transformers' whole model, with weights large enough that every part matters."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config_of(name, **changes), dtype=precision).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.2)
    return model


@dataclass
class Chained:
    """The blocks of a model, run one after the other."""

    model: BlockModel
    # By the tensor's name in a model folder.
    tensors: dict[str, Tensor]

    @classmethod
    def of(cls, name: str, reference: Any) -> "Chained":
        return cls(model_of(name), dict(reference.named_parameters()))

    def weights(self, index: int) -> dict[str, Tensor]:
        block = self.model.blocks[index]
        return {
            spec.name: self.tensors[self.model.parameter_name(block, spec)]
            for spec in (*block.trained, *block.frozen)
        }

    def logits(
        self, tokens_BT: Tensor, documents_BT: Tensor | None = None, most_per_row: int | None = None
    ) -> Tensor:
        tables = self.model.tables(tokens_BT, documents_BT, most_per_row)
        x_BTD = self.model.embed(self.weights(0), tokens_BT, tables)
        for index, block in enumerate(self.model.blocks):
            if block.kind not in ("embedding", "head"):
                x_BTD = self.model.layer(block.kind, self.weights(index), x_BTD, tables)
        head = self.weights(0 if self.model.tied else -1)
        return self.model.logits(head, x_BTD.flatten(0, 1)).unflatten(0, tokens_BT.shape)


def some_tokens(rows: int = 2, length: int = LENGTH) -> Tensor:
    return torch.randint(0, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(1))


def loss_of(logits_BTV: Tensor, tokens_BT: Tensor) -> Tensor:
    return cross_entropy(logits_BTV[:, :-1].flatten(0, 1), tokens_BT[:, 1:].flatten())
