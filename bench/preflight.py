"""Seconds that a pre-flight takes: `python bench/preflight.py --rows 50000`.

Rows are as long as those of Alpaca (about 400 bytes), in words of the text that is given; the tokenizer is a
BPE trained on it, and the chat template is ChatML. Prints one JSON line: seconds of the child process that
the server starts, and of the counting alone.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from gpubloom.datasets import ExampleFile, ModelFiles, ReadingOptions, preflight

_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def make_model(folder: Path, text: str) -> Path:
    """A folder with a tokenizer and a chat template."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=16_000, special_tokens=_SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([text], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"eos_token": "<|im_end|>", "chat_template": _TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder / "tokenizer.json"


def write_rows(path: Path, words: list[str], count: int) -> Path:
    chosen = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for _ in range(count):
            at = chosen.randrange(len(words) - 200)
            row = {
                "instruction": " ".join(words[at : at + 11]),
                "input": " ".join(words[at + 11 : at + 11 + max(0, chosen.randrange(-20, 20))]),
                "output": " ".join(words[at + 50 : at + 50 + chosen.randrange(5, 95)]),
            }
            file.write(json.dumps(row) + "\n")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--text", type=Path, required=True, help="A text of a megabyte or more.")
    parser.add_argument("--context-length", type=int, default=1_024)
    asked = parser.parse_args()
    text = asked.text.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = make_model(Path(folder), text)
        rows = write_rows(Path(folder) / "rows.jsonl", text.split(), asked.rows)
        options = {"context_length": asked.context_length, "eval_fraction": 0.05}
        file = {"path": str(rows), "name": rows.name, "format": None, "columns": {}, "encoding": None}
        file["weight"] = 1.0
        request = {
            "files": {"train": [file], "eval": None},
            "options": options,
            "packing": True,
            "tokenizer": str(tokenizer),
            "template": None,
            "sandbox": "prefer",
            "cpu_seconds": 600,
        }
        began = time.perf_counter()
        process = [sys.executable, "-P", "-m", "gpubloom.server.datasets.preflight_process"]
        subprocess.run(process, input=json.dumps(request).encode(), check=True, capture_output=True)
        in_process = time.perf_counter() - began
        began, worked = time.perf_counter(), time.process_time()
        found = preflight(
            [ExampleFile(rows)], None, ReadingOptions(**options), ModelFiles.load(tokenizer), packing=True
        )
        figures = {
            "rows": asked.rows,
            "bytes": rows.stat().st_size,
            "tokens": found.train.tokens,
            "process_seconds": round(in_process, 2),
            "seconds": round(time.perf_counter() - began, 2),
            "cpu_seconds": round(time.process_time() - worked, 2),
        }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
