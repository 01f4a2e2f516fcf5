"""`python -m gpubloom.engine.sample RUN PROMPT`: streams text from a run, a checkpoint or a model folder.

The process that `bloom models generate` starts. Wrong input ends it with one sentence and status 2.
"""

import argparse
import signal
import sys
import tempfile
from collections.abc import Sequence
from io import StringIO
from itertools import chain
from pathlib import Path

from gpubloom.engine.data import Tokenizer
from gpubloom.engine.generate import generate
from gpubloom.engine.llama_folder import TOKENIZER_FILE
from gpubloom.engine.pretrained_text import ON_CPU
from gpubloom.engine.serving.model_registry import load_text
from gpubloom.engine.serving.resolved_model import opened_model
from gpubloom.errors import error_line, exit_with


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="gpubloom.engine.sample")
    parser.add_argument("run", type=Path)
    parser.add_argument("prompt")
    parser.add_argument("--max-tokens", type=int, default=400)
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--top-k", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--base-model", type=Path)
    options = parser.parse_args(arguments)
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            opened_model(options.run, options.base_model, copy=Path(folder) / "weights") as found,
        ):
            model = load_text(found, ON_CPU)
            tokenizer = Tokenizer.load(found.file(TOKENIZER_FILE) or found.folder / TOKENIZER_FILE)
    except ValueError as problem:
        exit_with(problem)
    pieces = generate(
        model,
        tokenizer,
        options.prompt,
        max_tokens=options.max_tokens,
        temperature=options.temperature,
        top_k=options.top_k or None,
        seed=options.seed,
    )
    try:
        for piece in chain([options.prompt], pieces, ["\n"]):
            sys.stdout.write(piece)
            sys.stdout.flush()
    except OSError as problem:
        # What could not be written would be tried once more at the end of the interpreter.
        sys.stdout = StringIO()
        sys.exit(error_line("cannot_write", f"The output cannot be written: {problem.strerror}."))


if __name__ == "__main__":
    # A reader that has enough, such as `head -1`, ends this process without an error.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    main()
