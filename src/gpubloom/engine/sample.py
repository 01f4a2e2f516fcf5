"""`python -m gpubloom.engine.sample RUN PROMPT`: streams text from a run, a checkpoint or a model folder.

The process that `bloom sample` starts. Wrong input ends it with one sentence and status 2.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from gpubloom.engine import adapters_on_disk
from gpubloom.engine.checkpoint import checkpoint_folder, list_checkpoints
from gpubloom.engine.data import Tokenizer
from gpubloom.engine.export import CONFIG_FILE, TOKENIZER_FILE, has_weights, is_own, load_model
from gpubloom.engine.generate import TextModel, generate
from gpubloom.engine.pretrained_text import load_pretrained_text
from gpubloom.plan import TrainConfig


def find_model(path: Path) -> Path:
    """The model folder that a path means: itself, a run's final model, or a run's newest checkpoint."""
    for folder in (path, path / "model"):
        if has_weights(folder) or (folder / adapters_on_disk.WEIGHTS_FILE).is_file():
            return folder
    if not (path / CONFIG_FILE).is_file():
        raise ValueError(f"{path} is neither a run directory nor a model folder.")
    checkpoints = list_checkpoints(checkpoint_folder(TrainConfig.read(path / CONFIG_FILE), path.resolve()))
    if not checkpoints:
        raise ValueError(f"{path} has no checkpoint yet; wait for the first one.")
    return checkpoints[-1]


def open_folder(folder: Path) -> tuple[TextModel, Tokenizer]:
    """The model in a folder and its tokenizer, on the CPU."""
    if is_own(folder) and has_weights(folder):
        return load_model(folder)
    return load_pretrained_text(folder), Tokenizer.load(folder / TOKENIZER_FILE)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="gpubloom.engine.sample")
    parser.add_argument("run", type=Path)
    parser.add_argument("prompt")
    parser.add_argument("--max-tokens", type=int, default=400)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--top-k", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    try:
        model, tokenizer = open_folder(find_model(options.run))
    except ValueError as problem:
        sys.stderr.write(f"{problem}\n")
        sys.exit(2)
    sys.stdout.write(options.prompt)
    for piece in generate(
        model,
        tokenizer,
        options.prompt,
        max_tokens=options.max_tokens,
        temperature=options.temperature,
        top_k=options.top_k or None,
        seed=options.seed,
    ):
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
