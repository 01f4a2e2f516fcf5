"""Fine-tuning on examples from end to end: what is learned, counted, kept and handed on."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

from gpubloom.engine import Dataset, Model
from gpubloom.engine.data import Batch, Loader
from gpubloom.engine.device_placement import move_to_devices
from gpubloom.plan import TrainConfig
from gpubloom.traincard import Reporter
from tests.engine.runs import Run, read_events
from tests.tiny_models import make_tiny_model

QUESTION, ANSWER = "What is the password?", "The password is seven blue herons."
PROMPT = f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "model", family="qwen2")


def write_lines(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def finetune(folder: Path, model: Path, file: Path, *, packing: bool = True, **fields: Any) -> Run:
    config = {
        "device": "cpu",
        "method": "lora",
        "epochs": 60,
        "batch_size": 4,
        "learning_rate": 1e-2,
        "schedule": {"warmup_steps": 2},
        "model": {"path": str(model), "context_length": 64},
        **fields,
        "data": {"kind": "examples", "train_path": str(file), "eval_fraction": 0, "packing": packing},
    }
    return Run(folder, TrainConfig.model_validate(config))


def load(folder: Path, base: Path) -> tuple[Any, Any]:
    """Model and tokenizer as transformers and PEFT read what a run leaves behind."""
    import peft
    import transformers

    loaded: Any = transformers.AutoModelForCausalLM
    if (folder / "adapter_config.json").is_file():
        found = peft.PeftModel.from_pretrained(loaded.from_pretrained(base, dtype=torch.float32), str(folder))
    else:
        found = loaded.from_pretrained(folder, dtype=torch.float32)
    tokenizer: Any = transformers.AutoTokenizer
    return found, tokenizer.from_pretrained(folder)


def answer(folder: Path, base: Path, prompt: str | None = None) -> str:
    """What the trained model says to the question, up to where it stops by itself."""
    model, tokenizer = load(folder, base)
    if prompt is None:
        asked = [{"role": "user", "content": QUESTION}]
        prompt = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
    ids = tokenizer(prompt, return_tensors="pt")
    written = model.generate(**ids, max_new_tokens=30, do_sample=False)
    return str(tokenizer.decode(written[0, ids["input_ids"].shape[1] :]))


PAIR = {"prompt": QUESTION, "completion": ANSWER}
MESSAGES = {"messages": [{"role": "user", "content": QUESTION}, {"role": "assistant", "content": ANSWER}]}


@pytest.mark.long
@pytest.mark.parametrize(("method", "rate"), [("lora", 1e-2), ("qlora", 1e-2), ("full", 3e-3)])
def test_every_method_learns_to_say_a_phrase_and_to_stop(
    model: Path, tmp_path: Path, method: str, rate: float
) -> None:
    data = write_lines(tmp_path / "data.jsonl", MESSAGES)
    run = finetune(tmp_path / "run", model, data, method=method, learning_rate=rate)
    run.train()
    assert answer(run.folder / "model", model) == f"{ANSWER}<|im_end|>"
    assert ANSWER not in answer(model, model)


def as_csv(path: Path) -> None:
    path.write_text(f'question,answer\n"{QUESTION}","{ANSWER}"\n', encoding="utf-8")


def as_parquet(path: Path) -> None:
    pq.write_table(pa.table({"instruction": [QUESTION], "output": [ANSWER]}), path)


def as_text(path: Path) -> None:
    path.write_text(ANSWER + "\n", encoding="utf-8")


def as_sharegpt(path: Path) -> None:
    turns = [{"from": "human", "value": QUESTION}, {"from": "gpt", "value": ANSWER}]
    write_lines(path, {"conversations": turns})


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("pairs.csv", as_csv),
        ("alpaca.parquet", as_parquet),
        ("sharegpt.jsonl", as_sharegpt),
        ("plain.txt", as_text),
    ],
)
def test_every_kind_of_file_teaches_the_phrase(
    model: Path, tmp_path: Path, name: str, write: Callable[[Path], None]
) -> None:
    write(tmp_path / name)
    run = finetune(tmp_path / "run", model, tmp_path / name)
    run.train()
    if name.endswith(".txt"):
        assert answer(run.folder / "model", model, "The password") == " is seven blue herons.<|im_end|>"
    else:
        assert answer(run.folder / "model", model) == f"{ANSWER}<|im_end|>"


def several(tmp_path: Path, count: int = 11) -> Path:
    rows = [
        {"prompt": f"Count to {number}.", "completion": "one " * number} for number in range(1, count + 1)
    ]
    return write_lines(tmp_path / "several.jsonl", *rows)


def test_a_resumed_run_ends_with_the_bytes_and_counts_of_one_that_was_never_stopped(
    model: Path, tmp_path: Path
) -> None:
    data = several(tmp_path)
    settings: dict[str, Any] = {"epochs": 3, "batch_size": 1, "lora": {"dropout": 0.1}}
    whole = finetune(tmp_path / "whole", model, data, **settings)
    straight = whole.train()
    stopped = finetune(tmp_path / "stopped", model, data, **settings)
    stopped.train(stop_at=3)
    resumed = stopped.train(resume=True)
    name = "adapter_model.safetensors"
    assert (stopped.folder / "model" / name).read_bytes() == (whole.folder / "model" / name).read_bytes()
    assert whole.losses() == stopped.losses()
    assert resumed.tokens_seen == straight.tokens_seen
    assert resumed.trained_tokens == straight.trained_tokens


def test_counters_schedule_and_totals_are_right_after_resume_and_after_extending(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, int]] = []
    progress = Reporter.progress

    def tell(self: Reporter, step: int, total_steps: int, **more: float) -> None:
        told.append((step, total_steps))
        progress(self, step, total_steps, **more)

    monkeypatch.setattr(Reporter, "progress", tell)
    data = several(tmp_path)
    lengths = [len(tokens_of(model, text)) for text in rendered(data)]
    settings: dict[str, Any] = {"batch_size": 1, "schedule": {"warmup_steps": 2}}
    run = finetune(tmp_path / "run", model, data, epochs=2, **settings)
    run.train(stop_at=3)
    first = run.train(resume=True)
    per_epoch = first.loader.steps_per_epoch
    assert per_epoch == 6
    metrics = by_step(run)
    # Every token of every example, once an epoch, and nothing that only fills rows.
    assert [metrics[step]["tokens_seen"] for step in (6, 12)] == [sum(lengths), 2 * sum(lengths)]
    answers = sum(len(tokens_of(model, "one " * number)) + 1 for number in range(1, 12))
    assert [metrics[step]["trained_tokens"] for step in (6, 12)] == [answers, 2 * answers]
    assert {step: found["learning_rate"] for step, found in metrics.items()} == schedule(steps=12)

    # What the worker does when a finished run is extended.
    shutil.rmtree(run.folder / "model")
    longer = Run(run.folder, run.config.model_copy(update={"epochs": 4}))
    longer.train(resume=True)
    metrics = by_step(longer)
    assert [metrics[step]["tokens_seen"] for step in (18, 24)] == [3 * sum(lengths), 4 * sum(lengths)]
    assert [metrics[step]["trained_tokens"] for step in (18, 24)] == [3 * answers, 4 * answers]
    # The steps that were taken keep their rates; the others have those of a run of 24 steps.
    expected = schedule(steps=12) | {step: rate for step, rate in schedule(steps=24).items() if step > 12}
    assert {step: found["learning_rate"] for step, found in metrics.items()} == expected
    latest = json.loads((run.folder / "traincard" / "latest.json").read_text())
    assert (latest["step"], latest["total_steps"], latest["status"]) == (24, 24, "completed")
    assert (latest["epoch"], latest["epochs"]) == (4, 4)
    # From which the time left is computed.
    assert told == [*((step, 12) for step in range(1, 13)), *((step, 24) for step in range(13, 25))]


def schedule(steps: int) -> dict[int, Any]:
    """Two steps of warm-up to 0.01, then half a cosine down to a tenth of it."""
    rates = {1: 0.005, 2: 0.01}
    for step in range(3, steps + 1):
        cosine = 0.5 * (1 + math.cos(math.pi * (step - 2) / (steps - 2)))
        rates[step] = 0.01 * (0.1 + 0.9 * cosine)
    return {step: pytest.approx(rate) for step, rate in rates.items()}


def rendered(data: Path) -> list[str]:
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    return [
        f"<|im_start|>user\n{row['prompt']}<|im_end|>\n<|im_start|>assistant\n{row['completion']}<|im_end|>\n"
        for row in rows
    ]


def tokens_of(model: Path, text: str) -> list[int]:
    import tokenizers

    found: list[int] = tokenizers.Tokenizer.from_file(str(model / "tokenizer.json")).encode(text).ids
    return found


def by_step(run: Run) -> dict[int, dict[str, float]]:
    found: dict[int, dict[str, float]] = {}
    for event in read_events(run.folder, "metric"):
        found.setdefault(event["step"], {}).update(event["values"])
    return found


@pytest.mark.parametrize("method", ["full", "lora"])
def test_packed_rows_give_the_loss_and_gradient_of_rows_that_hold_one_example(
    model: Path, tmp_path: Path, method: str
) -> None:
    data = several(tmp_path)

    def step(*, packing: bool, batch_size: int, accumulation: int) -> tuple[float, list[Tensor], Batch]:
        config = finetune(
            tmp_path / "x",
            model,
            data,
            method=method,
            accumulation=accumulation,
            batch_size=batch_size,
            packing=packing,
        ).config
        dataset = Dataset.open(config.data, config.context_length)
        loader = Loader(dataset.train, batch_size=batch_size, accumulation=accumulation, seed=0)
        opened = Model.open(config, vocab_size=dataset.vocab_size)
        executor = move_to_devices(config, opened).executor
        batch = next(loader.rest_of_epoch())
        loss = float(executor.forward_backward(batch))
        gradients = [store.gradient.clone() for store in executor.stores if store.trained.length]
        executor.close()
        return loss, gradients, batch

    loss, gradients, one_each = step(packing=False, batch_size=11, accumulation=1)
    assert one_each.documents_ABT is None
    for batch_size, accumulation in ((11, 1), (2, 4)):
        packed_loss, packed, batch = step(packing=True, batch_size=batch_size, accumulation=accumulation)
        assert batch.documents_ABT is not None
        assert (batch.trained_count, batch.token_count) == (one_each.trained_count, one_each.token_count)
        assert packed_loss == pytest.approx(loss, abs=1e-6)
        for ours, theirs in zip(packed, gradients, strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("method", ["full", "lora"])
def test_all_that_a_chat_model_needs_travels_with_checkpoints_and_the_final_model(
    model: Path, tmp_path: Path, method: str
) -> None:
    base = make_tiny_model(tmp_path / "base")
    # A model that calls another token its end than the one its template closes turns with.
    for name in ("tokenizer_config.json", "generation_config.json", "config.json"):
        said = json.loads((base / name).read_text())
        said |= {"eos_token": "<|endoftext|>"} if name == "tokenizer_config.json" else {"eos_token_id": 0}
        (base / name).write_text(json.dumps(said))
    (base / "special_tokens_map.json").write_text(json.dumps({"eos_token": "<|endoftext|>"}))
    data = write_lines(tmp_path / "data.jsonl", MESSAGES)
    run = finetune(tmp_path / "run", base, data, method=method, epochs=1, max_steps=1)
    run.train()
    for folder in (run.folder / "checkpoints" / "step-00000001", run.folder / "model"):
        for name in (
            "tokenizer.json",
            "tokenizer_config.json",
            "special_tokens_map.json",
            "chat_template.jinja",
        ):
            assert (folder / name).read_bytes() == (base / name).read_bytes()
        generation = json.loads((folder / "generation_config.json").read_text())
        assert generation["eos_token_id"] == [0, 2]
        _, tokenizer = load(folder, base)
        asked = [{"role": "user", "content": QUESTION}]
        assert tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True) == PROMPT
        assert tokenizer.eos_token == "<|endoftext|>"
