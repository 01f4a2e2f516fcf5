"""Models for TRL with Unsloth's kernels. Importing this file changes transformers, TRL and PEFT: do it first.

Runs in an environment of its own, on one CUDA GPU. What Unsloth cannot do is refused in a sentence; nothing
is trained by something else instead.
"""

from pathlib import Path

import torch

from gpubloom.engine.hardware import Compute
from gpubloom.errors import InputError
from gpubloom.plan import TrainConfig
from gpubloom.plan.backends import UNSLOTH_PYTHON

if not torch.cuda.is_available():
    # Its own refusal comes from deep inside, after a minute of imports.
    raise InputError(
        "device_not_found",
        "Unsloth needs a CUDA GPU, but torch finds none on this machine: use backend engine or trl.",
    )
try:
    # Before everything that it changes.
    from unsloth import FastLanguageModel  # type: ignore[import-not-found]
except ImportError as problem:
    raise InputError(
        "backend_unavailable",
        f"Unsloth cannot be imported: {problem}. Start the run with the Python interpreter of the "
        f"environment in which Unsloth is installed, and set {UNSLOTH_PYTHON} to that interpreter.",
    ) from None

from gpubloom.backends.loading import Loaded
from gpubloom.hub.weight_index import check_model_folder

# Those that its kernels know.
_ALL_LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def load_with_unsloth(config: TrainConfig, compute: Compute) -> Loaded:
    """The model of config.model.path, patched, with its adapters."""
    assert config.model.path is not None, "TrainConfig refuses other backends without a model folder"
    check_model_folder(Path(config.model.path))
    four_bit = config.method == "qlora"
    model, _tokenizer = FastLanguageModel.from_pretrained(
        model_name=config.model.path,
        max_seq_length=config.context_length,
        dtype=torch.float32 if config.method == "full" else compute.dtype,
        load_in_4bit=four_bit,
        full_finetuning=config.method == "full",
        local_files_only=True,
        trust_remote_code=False,
    )
    optimizations = ("Unsloth's kernels", *(("4-bit weights (NF4)",) if four_bit else ()))
    if config.method == "full":
        return Loaded(model, None, optimizations)
    targets = config.lora.targets
    model = FastLanguageModel.get_peft_model(
        model,
        r=config.lora.rank,
        lora_alpha=config.lora.alpha,
        lora_dropout=config.lora.dropout,
        target_modules=list(_ALL_LINEAR if targets == "all-linear" else targets),
        bias="none",
        use_gradient_checkpointing="unsloth",
        random_state=config.seed % 2**32,
        max_seq_length=config.context_length,
    )
    return Loaded(model, None, optimizations)
