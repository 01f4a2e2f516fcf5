"""LoRA on a GPU beside Hugging Face + PEFT: tokens a second and memory, one process after the other.

    python bench/lora.py                                 all rows
    python bench/lora.py ours:30 peft-checkpointed       some of them; ours:GB has a budget of GPU memory
    python bench/lora.py ours fp8 qlora:9.2              products in fp8; a base model in 4 bits

Rank 16 on all linear layers of the Qwen2.5-7B shape with random weights, 4 rows of 2,048 tokens, bf16 base,
FP32 adapters, AdamW. `peft` keeps all activations; `peft-checkpointed` recomputes them, as most people do.
"""

import argparse
import json
import subprocess
import sys
import time
from typing import Any

from engine import measure

ROWS = ["ours", "ours:30", "peft", "peft-checkpointed"]
RANK = 16
WARM_UP = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("rows", nargs="*", default=ROWS)
    parser.add_argument("--size", default="7b")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=2_048)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--profile", action="store_true", help="name the kernels that took longest")
    parser.add_argument("--here", action="store_true", help="in this process")
    options = parser.parse_args()
    rest = [argument for argument in sys.argv[1:] if argument not in options.rows]
    for row in options.rows:
        if options.here:
            print(json.dumps({"lora": row, **_measure(row, options)}), flush=True)
            continue
        command = [sys.executable, __file__, row, *rest, "--here"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        failed = {"lora": row, "failed": done.stderr.strip().splitlines()[-3:]}
        print(lines[-1] if lines else json.dumps(failed), flush=True)


def _measure(row: str, options: argparse.Namespace) -> dict[str, Any]:
    kind, _, budget = row.partition(":")
    if kind.startswith("peft"):
        return _peft(options, checkpointed=kind == "peft-checkpointed")
    asked = argparse.Namespace(
        steps=options.steps,
        length=options.length,
        method="qlora" if kind == "qlora" else "lora",
        optimizer="adamw",
        state="fp32",
        precision="fp8" if kind == "fp8" else "auto",
        gradients="once",
        gpu_budget=float(budget) if budget else None,
        fixed_batch=False,
        trace=None,
        profile=options.profile,
    )
    return measure(f"{options.size}:{options.batch}:auto", asked)


def _peft(options: argparse.Namespace, *, checkpointed: bool) -> dict[str, Any]:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    from gpubloom.plan import named_config

    settings = named_config(f"qwen2.5-{options.size}")
    config = CONFIG_MAPPING[settings["model_type"]].from_dict(settings)
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model = get_peft_model(model, LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules="all-linear"))
    if checkpointed:
        model.gradient_checkpointing_enable()
        model.enable_input_require_grads()
    model.train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=True)

    def step(number: int) -> float:
        generator = torch.Generator().manual_seed(number)
        tokens = torch.randint(0, 150_000, (options.batch, options.length), generator=generator).cuda()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return float(loss)

    for number in range(WARM_UP):
        step(number)
    torch.cuda.synchronize()
    began = time.perf_counter()
    losses = [step(number) for number in range(WARM_UP, WARM_UP + options.steps)]
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - began) / options.steps
    return {
        "tokens_per_s": round(options.batch * options.length / seconds),
        "step_s": round(seconds, 3),
        "gpu_gb": round(torch.cuda.max_memory_reserved() / 1e9, 2),
        "losses": [round(loss, 3) for loss in losses],
    }


if __name__ == "__main__":
    main()
