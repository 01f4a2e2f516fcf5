"""What is read from real-looking scripts: one row each, every value as a person would say it.

A row names only what the script says or what follows from it; what is not named is not looked at. Memory and
hours are ranges: they are estimates, and say so.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpubloom.scripts import Requirements, detect

EXAMPLES = Path(__file__).parent / "examples"
SHAKESPEARE = ("config/train_shakespeare_char.py",)


@dataclass(frozen=True)
class Expected:
    file: str
    says: dict[str, Any]
    gigabytes: tuple[float, float]
    hours: tuple[float, float]
    memory: str = "assumed"  # how sure
    assumed: tuple[str, ...] = ()
    arguments: tuple[str, ...] = field(default=())


TABLE = [
    Expected(
        "nanogpt/train.py",
        {"purpose": "train", "parameters": 124_475_904, "batch": 12, "accumulation": 40, "sequence": 1024,
         "dtype": "bf16", "iterations": 600_000, "gpus": 1, "datasets": ["openwebtext"],
         "frameworks": ["pytorch"], "packages": ["numpy", "torch"], "resume": ("--init_from=resume",),
         "parallelism": ["ddp", "torch.distributed"], "saves": "torch.save", "folder": "out"},
        (8, 16), (300, 3000), memory="derived", assumed=("gpus",),
    ),
    Expected(
        "nanogpt/train.py",
        {"parameters": 10_770_816, "batch": 64, "accumulation": 1, "sequence": 256, "iterations": 2000,
         "datasets": ["shakespeare_char"], "folder": "out-shakespeare-char"},
        (1.5, 6), (0.05, 1), memory="derived", arguments=(*SHAKESPEARE, "--max_iters=2000"),
    ),
    Expected(
        "seed_snippet.py",
        {"purpose": "train", "parameters": 124_439_808, "iterations": 5000, "batch": None, "gpus": 1,
         "packages": ["torch"], "checkpoints": None},
        (8, 16), (1, 8), assumed=("gpus", "duration_hours"),
    ),
    Expected(
        "seed_sketch.py",
        {"purpose": "train", "parameters": 124_439_808, "iterations": None, "gpus": 1, "packages": ["torch"]},
        (16, 16), (4, 4), memory="stated", assumed=("purpose", "gpus"),
    ),
    Expected(
        "char_gpt_constants.py",
        {"parameters": 10_770_816, "batch": 64, "sequence": 256, "iterations": 5000, "saves": "torch.save",
         "resume": (), "gpus": 1},
        (2, 8), (0.1, 2), memory="derived",
    ),
    Expected(
        "hf_trainer_gpt2.py",
        {"models": ["gpt2-large"], "parameters": 774_030_080, "batch": 4, "accumulation": 8, "epochs": 2,
         "sequence": 512, "dtype": "bf16", "iterations": 294, "datasets": ["wikitext/wikitext-2-raw-v1"],
         "trackers": ["wandb"], "tensorboard": True, "frameworks": ["transformers"],
         "packages": ["datasets", "transformers"], "folder": "gpt2-wikitext", "method": "full"},
        (14, 24), (0.05, 1), memory="derived",
    ),
    Expected(
        "hf_bert_classification.py",
        {"models": ["bert-base-uncased"], "parameters": 109_500_000, "batch": 16, "epochs": 3,
         "sequence": 256, "dtype": "fp16", "iterations": 4689, "datasets": ["imdb"],
         "packages": ["evaluate", "numpy", "datasets", "transformers"]},
        (3, 10), (0.1, 2),
    ),
    Expected(
        "sft_trl.py",
        {"models": ["Qwen/Qwen2.5-1.5B"], "parameters": 1_543_714_304, "batch": 2, "accumulation": 4,
         "sequence": 2048, "iterations": 1000, "dtype": "bf16", "frameworks": ["trl"],
         "datasets": ["tatsu-lab/alpaca"], "method": "full"},
        (24, 45), (0.2, 3), memory="derived",
    ),
    Expected(
        "qlora_peft.py",
        {"method": "qlora", "parameters": 6_738_415_616, "batch": 4, "accumulation": 4, "epochs": 1,
         "sequence": 512, "dtype": "bf16", "iterations": 616,
         "frameworks": ["pytorch", "peft", "transformers", "trl"], "tensorboard": False},
        (8, 24), (0.2, 3), memory="derived",
    ),
    Expected(
        "unsloth_lora.py",
        {"method": "qlora", "parameters": 8_030_261_248, "batch": 2, "sequence": 2048, "iterations": 60,
         "dtype": "fp16", "frameworks": ["unsloth", "trl", "transformers"]},
        (8, 24), (0.05, 1.5), memory="derived",
    ),
    Expected(
        "grpo_small.py",
        {"method": "lora", "parameters": 494_032_768, "batch": 8, "iterations": 250, "dtype": "bf16",
         "packages": ["trl>=0.20", "peft", "datasets"], "datasets": ["openai/gsm8k"]},
        (4, 40), (0.05, 2),
    ),
    Expected(
        "accelerate_loop.py",
        {"models": ["roberta-base"], "batch": 32, "accumulation": 2, "sequence": 128, "epochs": 3,
         "dtype": "bf16", "parallelism": ["accelerate"], "tensorboard": True,
         "saves": "accelerator.save_state", "resume": ("--resume_from_checkpoint=PATH",)},
        (3, 10), (0.05, 2),
    ),
    Expected(
        "lightning_resnet.py",
        {"models": ["resnet50"], "parameters": 25_600_000, "batch": 256, "epochs": 90, "dtype": "fp16",
         "gpus": 4, "parallelism": ["ddp"], "datasets": ["ImageNet"], "tensorboard": True,
         "iterations": 112_680, "saves": "ModelCheckpoint", "folder": "checkpoints", "multi_node": False},
        (8, 40), (1, 40),
    ),
    Expected(
        "lightning_two_nodes.py",
        {"gpus": 16, "multi_node": True, "parallelism": ["fsdp"], "dtype": "bf16", "iterations": 2000,
         "parameters": 13_015_864_320, "batch": 1, "frameworks": ["lightning", "transformers", "pytorch"]},
        (10, 40), (0.2, 8),
    ),
    Expected(
        "keras_mnist.py",
        {"frameworks": ["tensorflow", "keras"], "packages": ["tensorflow"], "batch": 128, "epochs": 15,
         "datasets": ["mnist"], "iterations": 7035, "tensorboard": True, "saves": "ModelCheckpoint"},
        (1, 8), (0.1, 2), assumed=("duration_hours",),
    ),
    Expected(
        "keras_transfer.py",
        {"frameworks": ["keras"], "models": ["ResNet50"], "batch": 64, "epochs": 10, "dtype": "fp16",
         "datasets": ["oxford_iiit_pet"], "saves": "model.save"},
        (2, 12), (0.02, 1),
    ),
    Expected(
        "jax_flax_mnist.py",
        {"frameworks": ["jax", "optax", "flax"], "batch": 128, "epochs": 10, "datasets": ["mnist"],
         "saves": "orbax", "packages": ["jax", "optax", "orbax-checkpoint", "tensorflow-datasets", "flax"]},
        (1, 8), (0.1, 2), assumed=("duration_hours",),
    ),
    Expected(
        "plain_mlp_cpu.py",
        {"purpose": "train", "gpus": 0, "parameters": 668_672, "epochs": 20, "reference_gpu": None},
        (0, 0), (0.1, 2), memory="derived",
    ),
    Expected(
        "plain_cifar_argparse.py",
        {"models": ["resnet18"], "batch": 128, "epochs": 200, "iterations": 78_200, "datasets": ["CIFAR10"],
         "tensorboard": True, "resume": ("--resume",), "packages": ["torch", "torchvision", "tqdm"]},
        (1, 8), (0.1, 4),
    ),
    Expected(
        "ddp_spawn.py",
        {"gpus": 4, "parallelism": ["ddp", "torch.distributed"], "batch": 64, "epochs": 30, "dtype": "fp16",
         "iterations": 5880, "models": ["resnet50"], "multi_node": False},
        (1, 10), (0.02, 2),
    ),
    Expected(
        "ddp_torchrun.py",
        {"gpus": 1, "parallelism": ["ddp", "torch.distributed"], "batch": 32, "sequence": 512,
         "iterations": 20_000},
        (5, 20), (0.5, 12), memory="derived", assumed=("gpus",),
    ),
    Expected(
        "deepspeed_7b.py",
        {"parallelism": ["deepspeed"], "parameters": 7_241_732_096, "batch": 4, "accumulation": 8,
         "sequence": 2048, "dtype": "bf16", "iterations": 5000, "gpus": 4, "saves": "save_checkpoint"},
        (30, 80), (8, 60), memory="derived",
    ),
    Expected(
        "fsdp_llama.py",
        {"parallelism": ["fsdp", "torch.distributed"], "parameters": 8_030_261_248, "batch": 2,
         "sequence": 4096, "dtype": "bf16", "iterations": 10_000, "gpus": 2},
        (50, 80), (2, 30), memory="derived",
    ),
    Expected(
        "vit_timm.py",
        {"models": ["vit_base_patch16_224"], "parameters": 86_600_000, "batch": 64, "epochs": 5,
         "dtype": "bf16", "datasets": ["Food101"], "iterations": 5920},
        (6, 24), (0.1, 3),
    ),
    Expected(
        "vit_from_scratch.py",
        {"parameters": 12_582_912, "batch": 512, "epochs": 100, "datasets": ["CIFAR10"], "gpus": 1},
        (2, 30), (0.2, 8),
    ),
    Expected(
        "diffusion_dreambooth.py",
        {"models": ["stabilityai/stable-diffusion-2-1"], "batch": 1, "iterations": 800, "dtype": "fp16",
         "frameworks": ["pytorch", "accelerate", "diffusers", "transformers"], "folder": "dreambooth"},
        (12, 30), (0.05, 2),
    ),
    Expected(
        "sklearn_only.py",
        {"purpose": "train", "frameworks": ["scikit-learn"], "gpus": 0, "reference_gpu": None,
         "packages": ["joblib", "pandas", "scikit-learn"], "datasets": ["california_housing"]},
        (0, 0), (0.1, 2), memory="derived",
    ),
    Expected(
        "xgboost_gpu.py",
        {"frameworks": ["xgboost"], "gpus": 1, "datasets": ["https://example.org/data/clicks.csv"]},
        (1, 8), (0.1, 2),
    ),
    Expected(
        "inference_generate.py",
        {"purpose": "infer", "parameters": 7_241_732_096, "dtype": "fp16", "gpus": 1, "checkpoints": None},
        (14, 24), (0.1, 2),
    ),
    Expected(
        "inference_vllm.py",
        {"purpose": "infer", "gpus": 4, "dtype": "bf16", "parameters": 70_553_706_496},
        (36, 80), (0.1, 2),
    ),
    Expected(
        "dataclass_config.py",
        {"parameters": 354_823_168, "batch": 16, "sequence": 512, "iterations": 30_000, "dtype": "bf16",
         "trackers": ["wandb"], "folder": "ckpts"},
        (10, 24), (1, 10), memory="derived",
    ),
    Expected(
        "lstm_text.py",
        {"parameters": 56_227_328, "batch": 40, "sequence": 70, "epochs": 40, "gpus": 1},
        (1, 8), (0.1, 2), assumed=("duration_hours",),
    ),
    Expected(
        "visible_devices.py",
        {"gpus": 2, "parallelism": ["dataparallel"], "models": ["resnet101"], "iterations": 1000},
        (2, 12), (0.02, 2),
    ),
    Expected(
        "gradio_demo.py",
        {"purpose": "infer", "interactive": True, "models": ["google/vit-base-patch16-224"]},
        (1, 4), (0.1, 2),
    ),
    Expected(
        "colab_finetune.ipynb",
        {"interactive": True, "models": ["distilgpt2"], "parameters": 81_912_576, "batch": 8,
         "iterations": 500, "dtype": "fp16",
         "packages": ["transformers>=4.40", "datasets", "accelerate", "torch"],
         "folder": "/content/drive/MyDrive/out"},
        (3, 16), (0.02, 1),
    ),
    Expected(
        "nanogpt_launcher.ipynb",
        {"purpose": "train", "gpus": 2, "batch": 32, "interactive": True,
         "packages": ["torch", "numpy", "tiktoken"], "datasets": ["https://example.org/data/input.txt"]},
        (1, 8), (0.1, 2),
    ),
]  # fmt: skip


def _value(found: Requirements, name: str) -> Any:
    if name == "tensorboard":
        return found.writes_tensorboard.value
    if name in {"saves", "folder", "resume"}:
        assert found.checkpoints is not None
        saved = found.checkpoints.value
        return {"saves": saved.saves_with, "folder": saved.folder, "resume": saved.resume_arguments}[name]
    value = getattr(found, name)
    if isinstance(value, tuple):
        return [each.value for each in value]
    return value.value if hasattr(value, "confidence") else value


@pytest.mark.parametrize("row", TABLE, ids=lambda row: "-".join([row.file, *row.arguments]))
def test_values_of_a_real_looking_script(row: Expected) -> None:
    found = detect(EXAMPLES / row.file, arguments=row.arguments)
    assert {name: _value(found, name) for name in row.says} == row.says
    low, high = row.gigabytes
    assert low <= found.gpu_memory_gb.value <= high
    low, high = row.hours
    assert low <= found.duration_hours.value <= high
    assert found.gpu_memory_gb.confidence == row.memory
    for name in row.assumed:
        assert getattr(found, name).confidence == "assumed", name
        assert getattr(found, name).reason


def test_there_is_a_row_for_every_example() -> None:
    files = {
        str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*") if path.suffix in {".py", ".ipynb"}
    }
    siblings = {"nanogpt/model.py", "nanogpt/config/train_shakespeare_char.py"}
    assert files - siblings == {row.file for row in TABLE}
    assert len(files - siblings) >= 25


@pytest.mark.parametrize("row", TABLE, ids=lambda row: "-".join([row.file, *row.arguments]))
def test_every_stated_value_points_at_lines_that_are_there(row: Expected) -> None:
    found = detect(EXAMPLES / row.file, arguments=row.arguments)
    if row.file.endswith(".ipynb"):
        from gpubloom.scripts import from_notebook

        texts = {None: from_notebook((EXAMPLES / row.file).read_text())}
    else:
        texts = {None: (EXAMPLES / row.file).read_text()}
    looked_at = 0
    for name in type(found).model_fields:
        value = getattr(found, name)
        for each in value if isinstance(value, tuple) else [value]:
            if not hasattr(each, "evidence"):
                continue
            assert each.confidence != "stated" or each.evidence, f"{name} is stated nowhere"
            for line in each.evidence:
                if line.file == "command line":
                    continue
                if line.file not in texts:
                    texts[line.file] = (EXAMPLES / row.file).parent.joinpath(line.file).read_text()
                there = texts[line.file].split("\n")[line.line - 1].strip()
                assert there.startswith(line.text.removesuffix("…")), (name, line)
                looked_at += 1
    assert looked_at
