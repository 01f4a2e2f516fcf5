"""Trains a GPT on text: all files data/<dataset>/*.txt.

    python train.py                                    with the settings below
    python train.py --tokenizer=char --n_layer=4       with other settings
    python train.py --resume                           resume from out/ckpt.pt

On SIGTERM the script saves a checkpoint and stops.
"""

import argparse
import math
import os
import signal
import sys
import time
import urllib.request
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import torch
from model import GPT, GPTConfig


@dataclass
class Settings:
    dataset: str = "shakespeare"
    tokenizer: str = "gpt2"  # gpt2: the tokens of GPT-2; char: one token per character
    vocab_size: int = 50257  # with char: the number of characters
    batch_size: int = 12
    block_size: int = 1024
    gradient_accumulation_steps: int = 1
    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768
    dropout: float = 0.0
    learning_rate: float = 6e-4
    weight_decay: float = 0.1
    warmup_iters: int = 100
    max_iters: int = 5000
    eval_interval: int = 500
    eval_iters: int = 200
    log_interval: int = 10
    dtype: str = "bfloat16"  # float32, bfloat16 or float16
    device: str = "cuda"  # cpu is used if there is no GPU
    compile: bool = False
    out_dir: str = "out"
    seed: int = 1337


SHAKESPEARE = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"


def read_settings() -> tuple[Settings, bool]:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--resume", action="store_true", help="resume from the last checkpoint, if there is one"
    )
    for field in fields(Settings):
        kind = (lambda text: text.lower() in ("true", "1", "yes")) if field.type is bool else field.type
        parser.add_argument(f"--{field.name}", type=kind, default=field.default)
    chosen = vars(parser.parse_args())
    resume = chosen.pop("resume")
    return Settings(**chosen), resume


def read_text(dataset: str) -> str:
    folder = Path("data", dataset)
    if not any(folder.glob("*.txt")):
        if dataset != "shakespeare":
            sys.exit(f"There is no text in {folder}: put .txt files there, or name another --dataset.")
        folder.mkdir(parents=True, exist_ok=True)
        urllib.request.urlretrieve(SHAKESPEARE, folder / "part")
        (folder / "part").rename(folder / "input.txt")
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.txt")))


def tokenize(text: str, settings: Settings) -> tuple[np.ndarray, list[str] | None]:
    """Token ids, and the characters that they stand for."""
    if settings.tokenizer == "gpt2":
        import tiktoken

        return np.array(tiktoken.get_encoding("gpt2").encode_ordinary(text), dtype=np.int64), None
    characters = sorted(set(text))
    ids = {character: number for number, character in enumerate(characters)}
    return np.array([ids[character] for character in text], dtype=np.int64), characters


class Batches:
    """Random sequences from the text. The last tenth is held out for evaluation."""

    def __init__(self, ids: np.ndarray, settings: Settings, device: str) -> None:
        cut = int(0.9 * len(ids))
        self.parts = {"train": torch.from_numpy(ids[:cut]), "val": torch.from_numpy(ids[cut:])}
        self.rows, self.length, self.device = settings.batch_size, settings.block_size, device
        shortest = min(len(part) for part in self.parts.values())
        if shortest <= self.length:
            sys.exit(
                f"The text is too short: a tenth of it has {shortest} tokens, but a sequence has "
                f"{self.length}. Use more text, or a smaller --block_size."
            )

    def take(self, part: str, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        ids = self.parts[part]
        starts = torch.randint(len(ids) - self.length, (self.rows,), generator=generator)
        pieces = torch.stack([ids[start : start + self.length + 1] for start in starts.tolist()]).to(
            self.device
        )
        return pieces[:, :-1].contiguous(), pieces[:, 1:].contiguous()


def learning_rate(step: int, settings: Settings) -> float:
    """Linear warmup, then cosine decay to a tenth."""
    if step < settings.warmup_iters:
        return settings.learning_rate * (step + 1) / settings.warmup_iters
    done = (step - settings.warmup_iters) / max(1, settings.max_iters - settings.warmup_iters)
    return settings.learning_rate * (0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, done))))


def save(path: Path, content: dict) -> None:
    """Replaces the file atomically: the machine may stop while the file is written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    torch.save(content, part)
    os.replace(part, path)
    print(f"saved {path}")


def main() -> None:
    settings, resume = read_settings()
    device = settings.device if torch.cuda.is_available() else "cpu"
    dtype = getattr(torch, settings.dtype) if device != "cpu" else torch.float32
    if dtype == torch.bfloat16 and not torch.cuda.is_bf16_supported(including_emulation=False):
        print("this GPU does not support bfloat16: float16 is used")
        dtype = torch.float16
    asked_to_stop = []
    signal.signal(signal.SIGTERM, lambda *_: asked_to_stop.append(True))
    torch.manual_seed(settings.seed)

    ids, characters = tokenize(read_text(settings.dataset), settings)
    vocabulary = len(characters) if characters else settings.vocab_size
    batches = Batches(ids, settings, device)
    config = GPTConfig(
        vocab_size=vocabulary,
        block_size=settings.block_size,
        n_layer=settings.n_layer,
        n_head=settings.n_head,
        n_embd=settings.n_embd,
        dropout=settings.dropout,
    )
    model = GPT(config).to(device)
    matrices = [weight for weight in model.parameters() if weight.dim() >= 2]
    vectors = [weight for weight in model.parameters() if weight.dim() < 2]
    optimizer = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": settings.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ],
        lr=settings.learning_rate,
        betas=(0.9, 0.95),
    )
    scaler = torch.amp.GradScaler(device, enabled=dtype == torch.float16)
    draws = torch.Generator().manual_seed(settings.seed)
    first, best, checkpoint = 0, float("inf"), Path(settings.out_dir, "ckpt.pt")
    if resume and checkpoint.exists():
        kept = torch.load(checkpoint, map_location=device, weights_only=True)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        scaler.load_state_dict(kept["scaler"])
        draws.set_state(kept["draws"].cpu())
        first, best = kept["step"], kept["best"]
        print(f"resumed at step {first}")
    print(f"number of parameters: {sum(weight.numel() for weight in model.parameters()) / 1e6:.2f}M")
    print(
        "tokens per iteration will be: "
        f"{settings.gradient_accumulation_steps * settings.batch_size * settings.block_size:,}"
    )
    print(f"max_iters = {settings.max_iters}", flush=True)
    narrow = torch.autocast(device, dtype) if device != "cpu" else nullcontext()
    run = torch.compile(model) if settings.compile else model

    def measure(part: str) -> float:
        # The same sequences every time, so that losses can be compared.
        fixed = torch.Generator().manual_seed(settings.seed)
        model.eval()
        with torch.no_grad(), narrow:
            losses = [run(*batches.take(part, fixed))[1].item() for _ in range(settings.eval_iters)]
        model.train()
        return sum(losses) / len(losses)

    def keep(step: int) -> None:
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scaler": scaler.state_dict(),
        }
        about = {"settings": asdict(settings), "characters": characters, "config": asdict(config)}
        save(checkpoint, {**state, **about, "draws": draws.get_state(), "step": step, "best": best})

    model.train()
    clock = time.perf_counter()
    for step in range(first, settings.max_iters):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, settings)
        total = 0.0
        for _ in range(settings.gradient_accumulation_steps):
            inputs, targets = batches.take("train", draws)
            with narrow:
                loss = run(inputs, targets)[1] / settings.gradient_accumulation_steps
            scaler.scale(loss).backward()
            total += loss.item()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        done = step + 1
        if done % settings.log_interval == 0 or done == settings.max_iters:
            milliseconds = 1000 * (time.perf_counter() - clock) / settings.log_interval
            clock = time.perf_counter()
            print(f"iter {done}: loss {total:.4f}, time {milliseconds:.2f}ms", flush=True)
        if done % settings.eval_interval == 0 or done == settings.max_iters:
            found = measure("val")
            best = min(best, found)
            print(f"step {done}: train loss {measure('train'):.4f}, val loss {found:.4f}", flush=True)
            keep(done)
            clock = time.perf_counter()
        if asked_to_stop:
            keep(done)
            print(f"stopped at step {done}")
            return
    if characters:
        start = torch.zeros((1, 1), dtype=torch.long, device=device)
        model.eval()
        print("".join(characters[number] for number in model.continued(start, 200)[0].tolist()))


if __name__ == "__main__":
    main()
