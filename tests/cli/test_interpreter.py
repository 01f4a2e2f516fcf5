"""A run whose backend lives in an environment of its own is started there."""

import json
from pathlib import Path

from tests.cli.test_train import TEXT, bloom

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}


def test_a_run_of_unsloth_is_started_by_the_interpreter_that_was_named(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIG))
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "asked to run $2 $3"\nexit 2\n')
    python.chmod(0o755)
    settings = ["backend=unsloth", "method=lora", f"model.path={model}", "device=cpu"]
    done = bloom(
        *("train", "--train-path", "text.txt", "--run-dir", "run"),
        *(part for each in settings for part in ("--set", each)),
        folder=tmp_path,
        BLOOM_UNSLOTH_PYTHON=str(python),
    )
    assert done.returncode == 2, done.stdout
    assert done.stderr.strip() == "bloom train: asked to run run/train.py"
