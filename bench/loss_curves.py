"""Do runs in fp8, and with small optimizer state, learn what runs in bf16 with FP32 state learn?

    python bench/loss_curves.py --text TEXT [--steps 300] [--device cuda]

The same model from the same weights on the same bytes of a text, once for each kind, and in bf16 once more
with other weights: how far two runs are apart that differ in chance only. On a CPU torch computes products in
fp8 exactly as a GPU rounds them, only slowly. Prints the mean training loss of the last fifth of the steps,
the loss of held-out text, and the distance from bf16.
"""

import argparse
import time
from pathlib import Path
from statistics import mean

import numpy as np
import torch

from gpubloom.engine.data import Batch
from gpubloom.engine.executors.blocks import BlockExecutor
from gpubloom.engine.hardware import Compute
from gpubloom.engine.models.fp8 import use_fp8
from gpubloom.engine.models.transformer import LlamaBlocks, RandomLlama
from gpubloom.plan import ModelShape, OptimizerConfig
from gpubloom.plan.placement import resident

KINDS = ("bf16", "bf16, other weights", "fp8", "state bf16", "state 8bit")
ROWS, LENGTH, HELD_OUT = 16, 128, 16
SHAPE = ModelShape(
    vocab_size=256,
    hidden_size=256,
    layers=4,
    heads=4,
    kv_heads=4,
    ffn_size=768,
    context_length=LENGTH,
    tie_embeddings=True,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    options = parser.parse_args()
    text = np.frombuffer(options.text.read_bytes(), dtype=np.uint8)
    reference: list[float] = []
    for kind in KINDS:
        began = time.process_time()
        losses, held_out = train(kind, text, options.steps, torch.device(options.device))
        reference = reference or losses
        apart = mean(abs(one - other) for one, other in zip(losses, reference, strict=True)) / mean(reference)
        last = losses[-max(1, len(losses) // 5) :]
        print(
            f"{kind:<22}{mean(last):8.4f} last fifth{held_out:9.4f} held out{apart:9.2%} from bf16, all steps"
            f"{time.process_time() - began:8.0f} s of processor time",
            flush=True,
        )


def train(kind: str, text: np.ndarray, steps: int, device: torch.device) -> tuple[list[float], float]:
    model = LlamaBlocks(SHAPE)
    if kind == "fp8":
        use_fp8(model)
    state = kind.removeprefix("state ") if kind.startswith("state ") else "fp32"
    executor = BlockExecutor(
        model,
        RandomLlama(SHAPE, seed=2 if "other" in kind else 1),
        resident(SHAPE.layers, tied=True),
        OptimizerConfig.model_validate({"state": state}),
        Compute(device, "bf16", "for comparing"),
    )
    draw = np.random.default_rng(0)
    end = len(text) - HELD_OUT * (LENGTH + 1)
    losses = []
    for step in range(steps):
        starts = draw.integers(0, end - LENGTH - 1, ROWS)
        losses.append(float(executor.forward_backward(batch(text, starts))))
        executor.optimizer_step(1e-3 * min(1.0, (step + 1) / 20))
    held_out = batch(text, end + np.arange(HELD_OUT) * (LENGTH + 1))
    loss, _ = executor.evaluate(held_out)
    executor.close()
    return losses, float(loss) / held_out.targets_ABT.numel()


def batch(text: np.ndarray, starts: np.ndarray) -> Batch:
    rows = torch.from_numpy(text[starts[:, None] + np.arange(LENGTH + 1)].astype(np.int64))[None]
    return Batch(rows[..., :-1].contiguous(), rows[..., 1:].contiguous())


if __name__ == "__main__":
    main()
