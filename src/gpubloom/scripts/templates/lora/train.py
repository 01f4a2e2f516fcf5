"""Fine-tunes a language model with LoRA on examples.jsonl: only small adapter matrices are trained.

    python train.py                                            with the settings below
    python train.py --model_name=Qwen/Qwen2.5-7B-Instruct      with another model
    python train.py --resume                                   resume from out/checkpoint

Every line of examples.jsonl is {"prompt": "…", "completion": "…"}. The trained adapter is in out/adapter.
On SIGTERM the script saves a checkpoint and stops.
"""

import argparse
import json
import os
import random
import shutil
import signal
import time
from dataclasses import dataclass, fields
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer


@dataclass
class Settings:
    model_name: str = "Qwen/Qwen2.5-0.5B-Instruct"
    data_file: str = "examples.jsonl"
    batch_size: int = 4
    gradient_accumulation_steps: int = 1
    max_seq_length: int = 512
    max_steps: int = 200
    learning_rate: float = 2e-4
    lora_rank: int = 16
    save_steps: int = 50
    dtype: str = "bfloat16"  # float32 or bfloat16
    output_dir: str = "out"
    seed: int = 0


NOT_TRAINED = -100


def read_settings() -> tuple[Settings, bool]:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--resume", action="store_true", help="resume from the last checkpoint, if there is one"
    )
    for field in fields(Settings):
        parser.add_argument(f"--{field.name}", type=field.type, default=field.default)
    chosen = vars(parser.parse_args())
    resume = chosen.pop("resume")
    return Settings(**chosen), resume


def read_examples(settings: Settings, tokenizer) -> list[tuple[list[int], list[int]]]:
    """Token ids and labels; only completions count in the loss."""
    examples = []
    for line in Path(settings.data_file).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if tokenizer.chat_template:
            messages = [{"role": "user", "content": row["prompt"]}]
            asked = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        else:
            asked = row["prompt"]
        before = tokenizer(asked, add_special_tokens=False)["input_ids"]
        answer = tokenizer(row["completion"], add_special_tokens=False)["input_ids"] + [
            tokenizer.eos_token_id
        ]
        ids = (before + answer)[: settings.max_seq_length]
        labels = ([NOT_TRAINED] * len(before) + answer)[: settings.max_seq_length]
        examples.append((ids, labels))
    return examples


def padded(rows: list[tuple[list[int], list[int]]], device: str) -> dict[str, torch.Tensor]:
    longest = max(len(ids) for ids, _ in rows)
    return {
        "input_ids": torch.tensor([ids + [0] * (longest - len(ids)) for ids, _ in rows], device=device),
        "labels": torch.tensor([labels + [NOT_TRAINED] * (longest - len(labels)) for _, labels in rows]).to(
            device
        ),
        "attention_mask": torch.tensor([[1] * len(ids) + [0] * (longest - len(ids)) for ids, _ in rows]).to(
            device
        ),
    }


def keep(model, optimizer, step: int, folder: Path) -> None:
    """Replaces the folder atomically: the machine may stop while it is written."""
    part, old = folder.with_name("checkpoint.part"), folder.with_name("checkpoint.old")
    for left in (part, old):
        shutil.rmtree(left, ignore_errors=True)
    model.save_pretrained(part)
    torch.save({"optimizer": optimizer.state_dict(), "step": step}, part / "state.pt")
    if folder.exists():
        os.replace(folder, old)
    os.replace(part, folder)
    shutil.rmtree(old, ignore_errors=True)
    print(f"saved {folder}", flush=True)


def main() -> None:
    settings, resume = read_settings()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = getattr(torch, settings.dtype) if device == "cuda" else torch.float32
    asked_to_stop = []
    signal.signal(signal.SIGTERM, lambda *_: asked_to_stop.append(True))
    torch.manual_seed(settings.seed)
    tokenizer = AutoTokenizer.from_pretrained(settings.model_name)
    base = AutoModelForCausalLM.from_pretrained(settings.model_name, dtype=dtype).to(device)
    out = Path(settings.output_dir)
    # While the folder is replaced, the old one has another name for a moment.
    checkpoint = next(
        (path for name in ("checkpoint", "checkpoint.old") if (path := out / name).exists()), None
    )
    first = 0
    if resume and checkpoint is not None:
        model = PeftModel.from_pretrained(base, checkpoint, is_trainable=True)
    else:
        lora = LoraConfig(
            r=settings.lora_rank,
            lora_alpha=2 * settings.lora_rank,
            target_modules="all-linear",
            task_type="CAUSAL_LM",
        )
        model = get_peft_model(base, lora)
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=settings.learning_rate)
    if resume and checkpoint is not None:
        state = torch.load(checkpoint / "state.pt", map_location=device, weights_only=True)
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
        print(f"resumed at step {first}")
    examples = read_examples(settings, tokenizer)
    print(
        f"{len(examples)} examples, {sum(weight.numel() for weight in trained):,} trainable parameters",
        flush=True,
    )

    model.train()
    for step in range(first + 1, settings.max_steps + 1):
        began = time.perf_counter()
        # The examples of a step depend only on its number, so that a resumed run uses the same ones.
        draw = random.Random(settings.seed * 1_000_003 + step)
        total = 0.0
        for _ in range(settings.gradient_accumulation_steps):
            rows = [draw.choice(examples) for _ in range(settings.batch_size)]
            loss = model(**padded(rows, device)).loss / settings.gradient_accumulation_steps
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seconds = time.perf_counter() - began
        print(f"step {step}/{settings.max_steps} | loss: {total:.4f} | seconds: {seconds:.3f}", flush=True)
        if step % settings.save_steps == 0 or step == settings.max_steps or asked_to_stop:
            keep(model, optimizer, step, out / "checkpoint")
        if asked_to_stop:
            print(f"stopped at step {step}")
            return
    model.save_pretrained(out / "adapter")
    tokenizer.save_pretrained(out / "adapter")


if __name__ == "__main__":
    main()
