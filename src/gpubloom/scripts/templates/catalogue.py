"""The templates by name: which files, for which provider, and what the command line changes for it."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable


@dataclass(frozen=True)
class TemplateFile:
    """A text file of a template."""

    path: str
    text: str


@dataclass(frozen=True)
class Template:
    """A folder that runs as it is. `provider` is where its values are meant for; it runs anywhere else, too.

    The script is train.py. `datasets` are named datasets that it reads from data/NAME.
    """

    name: str
    title: str
    provider: str
    description: str
    files: tuple[TemplateFile, ...]
    arguments: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    gpu: str | None = None


_SHAKESPEARE = ("shakespeare",)
# Sixty-five characters are what the text has; the script counts them itself, the estimate reads them here.
_SMALL_GPT = (
    "--dataset=tales", "--tokenizer=char", "--vocab_size=65", "--n_layer=4", "--n_head=4", "--n_embd=128",
    "--block_size=64", "--batch_size=16", "--learning_rate=1e-3", "--warmup_iters=20", "--max_iters=600",
    "--eval_interval=100", "--eval_iters=10", "--dtype=float32", "--device=cpu",
)  # fmt: skip


@cache
def templates() -> tuple[Template, ...]:
    """All of them, the one that runs on any machine first."""
    gpt, lora = _folder("nanogpt"), _folder("lora")
    gpt_code = tuple(file for file in gpt if file.path.endswith(".py"))
    return (
        Template(
            "nanogpt-local", "Character-level GPT", "local",
            "0.8 million parameters, trained on a short story that is included. Takes a few minutes without "
            "a GPU.",
            gpt, _SMALL_GPT,
        ),
        Template(
            "nanogpt-modal", "GPT-2 small on Modal", "modal",
            "124 million parameters, 5,000 steps on Shakespeare. Fits an A10 with 24 GB.",
            gpt_code, (), _SHAKESPEARE, "A10",
        ),
        Template(
            "nanogpt-lambda", "GPT-2 small on Lambda", "lambda",
            "124 million parameters, 5,000 steps on Shakespeare, compiled, which pays off in longer runs.",
            gpt_code, ("--compile=true",), _SHAKESPEARE, "A10",
        ),
        Template(
            "nanogpt-paperspace", "GPT-2 small on Paperspace", "paperspace",
            "124 million parameters, 5,000 steps on Shakespeare. Fits an A4000 with 16 GB.",
            gpt_code, (), _SHAKESPEARE, "RTX A4000",
        ),
        Template(
            "nanogpt-colab", "GPT-2 small in Colab", "colab",
            "124 million parameters, 5,000 steps on Shakespeare, in float16 for a T4.",
            gpt_code, ("--dtype=float16", "--batch_size=6", "--gradient_accumulation_steps=2"), _SHAKESPEARE,
            "T4",
        ),
        Template(
            "lora-local", "LoRA fine-tuning of a 0.5B model", "local",
            "Fine-tunes Qwen2.5 0.5B on twenty short answers. Downloads the model first (1 GB).",
            lora, ("--batch_size=2", "--max_seq_length=256", "--max_steps=60"),
        ),
        Template(
            "lora-modal", "LoRA fine-tuning of a 1.5B model on Modal", "modal",
            "Fine-tunes Qwen2.5 1.5B on short answers. Takes minutes on an L4, billed by the second.",
            lora, ("--model_name=Qwen/Qwen2.5-1.5B-Instruct",), (), "L4",
        ),
        Template(
            "lora-lambda", "LoRA fine-tuning of a 7B model on Lambda", "lambda",
            "Fine-tunes Qwen2.5 7B in bfloat16. Fits an A6000 with 48 GB.",
            lora,
            ("--model_name=Qwen/Qwen2.5-7B-Instruct", "--batch_size=2", "--gradient_accumulation_steps=4"),
            (), "RTX A6000",
        ),
        Template(
            "lora-paperspace", "LoRA fine-tuning of a 1.5B model on Paperspace", "paperspace",
            "Fine-tunes Qwen2.5 1.5B on short answers. Fits an A4000 with 16 GB.",
            lora, ("--model_name=Qwen/Qwen2.5-1.5B-Instruct",), (), "RTX A4000",
        ),
        Template(
            "lora-colab", "LoRA fine-tuning of a 0.5B model in Colab", "colab",
            "Fine-tunes Qwen2.5 0.5B in float32, because a T4 does not support bfloat16.",
            lora, ("--dtype=float32",), (), "T4",
        ),
    )  # fmt: skip


def _folder(name: str) -> tuple[TemplateFile, ...]:
    return tuple(sorted(_files(files("gpubloom.scripts.templates") / name, ""), key=lambda file: file.path))


def _files(folder: Traversable, prefix: str) -> list[TemplateFile]:
    found = []
    for entry in folder.iterdir():
        path = f"{prefix}{entry.name}"
        if entry.is_dir():
            # What Python keeps beside modules is no part of them.
            found += [] if entry.name == "__pycache__" else _files(entry, f"{path}/")
        else:
            found.append(TemplateFile(path, entry.read_text(encoding="utf-8")))
    return found
