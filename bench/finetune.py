"""From the start of the process to the saved adapter: `bloom finetune` beside TRL, in one call.

    python bench/finetune.py                          ours, ours compiled, TRL
    python bench/finetune.py ours trl --size 0.5b     some of them

LoRA of rank 16 on all linear layers of a Qwen2.5 shape with random weights, 7,000 short question-answer
pairs, two epochs, packed into rows of 1,024 tokens, 8 rows a step, bf16. `ours` is `bloom finetune` with its
defaults. `trl` is SFTTrainer with packing, without activation checkpointing, which is its faster way here.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

EXAMPLES, EPOCHS, ROWS, LENGTH, RANK = 7_000, 2, 8, 1_024, 16
VOCABULARY = 8_192
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", nargs="*", default=["ours", "compiled", "trl"])
    parser.add_argument("--size", default="0.5b")
    parser.add_argument("--examples", type=int, default=EXAMPLES)
    parser.add_argument("--timeout", type=float, default=400.0)
    options = parser.parse_args()
    if options.what[0] == "trl-here":
        _trl(*map(Path, options.what[1:]))
        return
    with tempfile.TemporaryDirectory() as found:
        folder = Path(found)
        _make_model(folder / "model", options.size)
        _make_data(folder / "data.jsonl", options.examples)
        for what in options.what:
            print(json.dumps({"what": what, **_measure(what, folder, options.timeout)}), flush=True)


def _measure(what: str, folder: Path, timeout: float) -> dict[str, Any]:
    model, data, out = folder / "model", folder / "data.jsonl", folder / f"run-{what}"
    if what == "trl":
        command = [sys.executable, __file__, "trl-here", str(model), str(data), str(out)]
    else:
        command = [sys.executable, "-m", "gpubloom.cli", "finetune", str(model), str(data)]
        command += ["--epochs", str(EPOCHS), "--run-dir", str(out)]
        command += ["--set", "compile=on"] if what == "compiled" else []
    began = time.perf_counter()
    environment = os.environ | {"TOKENIZERS_PARALLELISM": "true", "BLOOM_ANNOUNCE": "off"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, env=environment, check=False
        )
    except subprocess.TimeoutExpired as problem:
        return {"failed": f"no result in {timeout:.0f} s", "said": str(problem.stdout)[-500:]}
    seconds = time.perf_counter() - began
    saved = list(out.rglob("adapter_model.safetensors"))
    if done.returncode or not saved:
        return {"failed": done.returncode, "said": (done.stdout + done.stderr)[-1_500:]}
    return {"seconds": round(seconds, 1), "said": done.stdout.strip().splitlines()[-8:]}


def _make_model(folder: Path, size: str) -> None:
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedTokenizerFast

    from gpubloom.plan import named_config

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((text for pair in _pairs(2_000) for text in pair), trainer)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    wrapped.chat_template = TEMPLATE
    settings = named_config(f"qwen2.5-{size}")
    config = CONFIG_MAPPING[settings["model_type"]].from_dict(settings)
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    wrapped.save_pretrained(folder)


def _make_data(path: Path, examples: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        for question, answer in _pairs(examples):
            messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
            file.write(json.dumps({"messages": messages}) + "\n")


def _pairs(count: int) -> list[tuple[str, str]]:
    """Questions of about 30 words and answers of about 90, in made-up words."""
    draw = random.Random(0)
    alphabet = "etaoinshrdlucmfwypvbgk"
    words = ["".join(draw.choices(alphabet, k=draw.randint(2, 8))) for _ in range(3_000)]

    def text(low: int, high: int) -> str:
        return " ".join(draw.choices(words, k=draw.randint(low, high)))

    return [(text(10, 50) + "?", text(40, 140) + ".") for _ in range(count)]


def _trl(model: Path, data: Path, out: Path) -> None:
    import torch
    from peft import LoraConfig
    from trl import SFTConfig, SFTTrainer

    from datasets import load_dataset

    trainer = SFTTrainer(
        model=str(model),
        args=SFTConfig(
            output_dir=str(out),
            num_train_epochs=EPOCHS,
            per_device_train_batch_size=ROWS,
            max_length=LENGTH,
            packing=True,
            bf16=torch.cuda.is_available(),
            use_cpu=not torch.cuda.is_available(),
            gradient_checkpointing=False,
            learning_rate=2e-4,
            logging_steps=10,
            save_strategy="no",
            report_to="none",
            model_init_kwargs={"dtype": "bfloat16"},
        ),
        train_dataset=load_dataset("json", data_files=str(data), split="train"),
        peft_config=LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules="all-linear"),
    )
    result = trainer.train()
    trainer.save_model(str(out))
    print(f"{trainer.state.global_step} steps, {result.metrics['train_runtime']:.1f} s of training")


if __name__ == "__main__":
    main()
