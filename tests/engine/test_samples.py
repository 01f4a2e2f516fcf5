"""Sample prompts: answered before the first step and at every evaluation, without a trace in the training."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gpubloom.engine.data import Batch
from gpubloom.engine.pretrained_text import ON_CPU
from gpubloom.engine.serving.model_registry import load_text
from gpubloom.engine.serving.prompt_formatter import PromptFormatter
from gpubloom.engine.serving.resolved_model import find_model
from gpubloom.engine.tasks.evaluate import replay
from gpubloom.engine.trainer import Trainer
from gpubloom.plan import TrainConfig
from tests.engine.runs import Run
from tests.tiny_models import make_tiny_model

PROMPTS = ["The quick", "times it went, and"]


def samples(run: Run) -> list[tuple[int, str, str]]:
    return [(event["step"], event["prompt"], event["text"]) for event in run.events("sample")]


def test_samples_come_before_training_and_with_every_evaluation(make_run: Callable[..., Run]) -> None:
    run = make_run(
        max_steps=12, learning_rate=1e-2, eval={"every_steps": 5, "prompts": PROMPTS, "sample_tokens": 8}
    )
    run.train()
    found = samples(run)
    assert [(step, prompt) for step, prompt, _ in found] == [
        (step, prompt) for step in (0, 5, 10, 12) for prompt in PROMPTS
    ]
    assert found[0][2] != found[-2][2]


@pytest.mark.long
@pytest.mark.parametrize("method", ["full", "lora"])
def test_a_run_with_samples_has_the_losses_and_weights_of_one_without(
    tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropout draws and the order of the data included; torch's own generator keeps its state."""
    model = make_tiny_model(tmp_path / "model", family="qwen2")
    data = tmp_path / "data.jsonl"
    rows = [{"prompt": f"Where is key {n}?", "completion": f"Under stone {n}."} for n in range(30)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    states: list[bytes] = []
    original = Trainer.train_step

    def noted(self: Trainer, batch: Batch) -> None:
        states.append(torch.get_rng_state().numpy().tobytes())
        original(self, batch)

    monkeypatch.setattr(Trainer, "train_step", noted)

    def trained(name: str, **eval_fields: Any) -> tuple[Run, list[bytes]]:
        fields: dict[str, Any] = {
            "device": "cpu",
            "method": method,
            "epochs": 2,
            "batch_size": 2,
            "learning_rate": 1e-3,
            "model": {"path": str(model), "context_length": 96},
            "data": {"kind": "examples", "train_path": str(data), "eval_fraction": 0.2},
            "eval": {"every_steps": 2, **eval_fields},
            **({"lora": {"dropout": 0.2}} if method == "lora" else {}),
        }
        run = Run(tmp_path / name, TrainConfig.model_validate(fields))
        states.clear()
        run.train()
        return run, list(states)

    without, states_without = trained("without")
    first, states_with = trained("first", prompts=["Where is key 3?"], sample_tokens=12)
    second, _ = trained("second", prompts=["Where is key 3?"], sample_tokens=12)
    assert samples(first)
    assert samples(first) == samples(second)
    assert first.losses() == without.losses()
    assert states_with == states_without
    name = "model.safetensors" if method == "full" else "adapter_model.safetensors"
    contents = {run.folder.name: (run.folder / "model" / name).read_bytes() for run in (without, first)}
    assert contents["without"] == contents["first"]


@pytest.mark.long
def test_the_last_sample_is_what_the_playground_answers_and_the_first_what_its_base_does(
    tmp_path: Path,
) -> None:
    model = make_tiny_model(tmp_path / "model", family="llama")
    data = tmp_path / "data.jsonl"
    pair = {"prompt": "What is the password?", "completion": "The password is seven blue herons."}
    data.write_text(json.dumps(pair) + "\n")
    config = TrainConfig.model_validate(
        {
            "device": "cpu",
            "method": "lora",
            "epochs": 60,
            "batch_size": 4,
            "learning_rate": 1e-2,
            "schedule": {"warmup_steps": 2},
            "model": {"path": str(model), "context_length": 64},
            "data": {"kind": "examples", "train_path": str(data), "eval_fraction": 0},
            "eval": {"prompts": ["What is the password?"], "sample_tokens": 20, "every_steps": 30},
        }
    )
    run = Run(tmp_path / "run", config)
    # As `bloom finetune` leaves it: a model is found by its run's config.
    run.folder.mkdir()
    (run.folder / "config.json").write_text(config.to_json())
    run.train()
    found = samples(run)
    assert found[-1][2] == "The password is seven blue herons."
    base = find_model(model)
    answered = replay(
        load_text(base, ON_CPU), PromptFormatter.of(base), "What is the password?", 20, chats=True
    )
    assert (found[0][0], found[0][2]) == (0, answered)


def test_a_resumed_run_does_not_ask_the_base_model_again(make_run: Callable[..., Run]) -> None:
    run = make_run(max_steps=8, eval={"every_steps": 4, "prompts": PROMPTS[:1], "sample_tokens": 4})
    run.train(stop_at=4)
    run.train(resume=True)
    assert [step for step, _, _ in samples(run)] == [0, 4, 8]


def test_a_prompt_that_fills_a_sequence_is_left_out_with_a_sentence(make_run: Callable[..., Run]) -> None:
    run = make_run(max_steps=2, eval={"prompts": ["long " * 20, "The"], "sample_tokens": 4})
    run.train()
    assert {prompt for _, prompt, _ in samples(run)} == {"The"}
    warnings = [event["line"] for event in run.events("log") if event["level"] == "warning"]
    assert any("left out" in line and "max sequence length" in line for line in warnings)
