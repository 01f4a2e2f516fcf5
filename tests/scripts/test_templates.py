"""Templates: read as what they say, and run as they are, a few steps each."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpubloom.agent.progress.formats import read_line
from gpubloom.offers import load_prices
from gpubloom.scripts import Requirements, detect
from gpubloom.scripts.templates import Template, templates
from tests.tiny_models import make_tiny_model

NAMED = {template.name: template for template in templates()}
# Tiny models are slower on several threads.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
# In place of the package that fetches GPT-2's vocabulary: bytes are tokens, too.
TIKTOKEN = """
class get_encoding:
    def __init__(self, name):
        assert name == "gpt2"
    def encode_ordinary(self, text):
        return list(text.encode())
"""
TINY = ("--n_layer=1", "--n_head=2", "--n_embd=16", "--block_size=32", "--eval_iters=1")


def written(template: Template, folder: Path) -> Path:
    for file in template.files:
        (folder / file.path).parent.mkdir(parents=True, exist_ok=True)
        (folder / file.path).write_text(file.text)
    return folder


def command(template: Template, *arguments: str) -> list[str]:
    return [sys.executable, "train.py", *template.arguments, *arguments]


def run(template: Template, folder: Path, *arguments: str) -> str:
    # No limit of its own: how long libraries take to load is up to the machine, and the test has one.
    done = subprocess.run(
        command(template, *arguments),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def stopped(template: Template, folder: Path, at: str, *arguments: str) -> tuple[str, int]:
    """What it prints when it gets SIGTERM after a line that begins with `at`, and its exit code."""
    printed = ""
    with subprocess.Popen(
        command(template, *arguments), cwd=folder, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            printed += line
            if line.startswith(at):
                process.send_signal(signal.SIGTERM)
        return printed, process.wait()


def read(template: Template) -> Requirements:
    files = {file.path: file.text for file in template.files}
    return detect(files.pop("train.py"), files=files, arguments=template.arguments)


def test_every_provider_has_both_kinds_and_names_are_its_own() -> None:
    assert len(NAMED) == len(templates())
    providers = {"local", "modal", "lambda", "paperspace", "colab"}
    assert set(NAMED) == {f"{kind}-{provider}" for kind in ("nanogpt", "lora") for provider in providers}
    known = load_prices()
    for template in templates():
        assert template.provider in known.providers
        if template.gpu is not None:
            there = {row.gpu for row in known.rows if row.provider == template.provider}
            assert template.gpu in there, f"{template.name} names a GPU that {template.provider} has not"


@pytest.mark.parametrize("provider", ["modal", "lambda", "paperspace"])
def test_a_gpt_for_a_rented_gpu_has_the_usual_values(provider: str) -> None:
    found = read(NAMED[f"nanogpt-{provider}"])
    assert found.parameters is not None
    assert found.parameters.value == 124_439_808
    stated = {name: getattr(found, name) for name in ("batch", "sequence", "iterations", "dtype")}
    assert {name: each.value for name, each in stated.items()} == {
        "batch": 12, "sequence": 1024, "iterations": 5000, "dtype": "bf16",
    }  # fmt: skip
    assert all(each.confidence == "stated" for each in stated.values())
    assert 8 <= found.gpu_memory_gb.value <= 16


def test_what_a_template_needs_fits_the_gpu_it_names() -> None:
    memory = {row.gpu: row.memory_gb for row in load_prices().rows}
    for template in templates():
        found = read(template)
        assert found.checkpoints is not None
        assert found.checkpoints.value.resume_arguments == ("--resume",), template.name
        assert found.purpose.value == "train"
        if template.gpu is not None:
            assert found.gpu_memory_gb.value < 0.9 * memory[template.gpu], template.name
    assert read(NAMED["nanogpt-local"]).gpus.value == 0
    colab = read(NAMED["nanogpt-colab"])
    assert colab.batch is not None
    assert colab.accumulation is not None
    assert colab.dtype is not None
    # As many rows a step as elsewhere; a T4 has no bfloat16.
    assert colab.batch.value * colab.accumulation.value == 12
    assert colab.dtype.value == "fp16"


@pytest.mark.long
def test_the_local_gpt_learns_saves_when_it_is_stopped_and_goes_on(tmp_path: Path) -> None:
    template = NAMED["nanogpt-local"]
    folder = written(template, tmp_path)
    small = ("--n_embd=32", "--n_layer=1", "--log_interval=5", "--eval_iters=1", "--learning_rate=1e-2")
    # More steps than anybody waits for.
    printed, code = stopped(template, folder, "iter 30:", *small, "--max_iters=1000000", "--eval_interval=20")
    assert code == 0
    last = int(printed.rpartition("stopped at step ")[2])
    said = [each for line in printed.splitlines() if (each := read_line(line))]
    losses = [each.values["train/loss"] for each in said if "train/loss" in each.values]
    assert losses[5] < losses[0] - 0.3
    assert 20 in [each.step for each in said if "eval/loss" in each.values]
    assert 1_000_000 in [each.total for each in said]

    end = last + 2
    again = run(template, folder, *small, "--resume", "--log_interval=1", f"--max_iters={end}")
    assert f"resumed at step {last}" in again
    steps = [
        each.step for line in again.splitlines() if (each := read_line(line)) and "train/loss" in each.values
    ]
    assert steps == [last + 1, last + 2]


@pytest.mark.long
@pytest.mark.parametrize("provider", ["modal", "paperspace", "colab"])
def test_a_gpt_for_a_rented_gpu_runs_small(provider: str, tmp_path: Path) -> None:
    template = NAMED[f"nanogpt-{provider}"]
    folder = written(template, tmp_path)
    (folder / "tiktoken.py").write_text(TIKTOKEN)
    (folder / "data" / "shakespeare").mkdir(parents=True)
    (folder / "data" / "shakespeare" / "input.txt").write_text("To be, or not to be: " * 100)
    printed = run(template, folder, *TINY, "--batch_size=2", "--max_iters=2", "--eval_interval=1")
    assert "step 2: train loss" in printed
    assert (folder / "out" / "ckpt.pt").is_file()


@pytest.mark.long
def test_without_text_a_gpt_says_where_to_put_it(tmp_path: Path) -> None:
    template = NAMED["nanogpt-local"]
    folder = written(template, tmp_path)
    done = subprocess.run(
        command(template, "--dataset=none"), cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "There is no text in data/none: put .txt files there" in done.stderr


@pytest.mark.long
def test_adapters_learn_and_go_on_after_a_stop(tmp_path: Path) -> None:
    template = NAMED["lora-local"]
    folder = written(template, tmp_path / "job")
    model = make_tiny_model(tmp_path / "model")
    few = (f"--model_name={model}", "--max_steps=6", "--save_steps=3", "--learning_rate=5e-3")
    printed, code = stopped(template, folder, "step 2/6", *few)
    assert code == 0
    last = int(printed.rpartition("stopped at step ")[2])
    printed += run(template, folder, *few, "--resume")
    said = [
        each for line in printed.splitlines() if (each := read_line(line)) and "train/loss" in each.values
    ]
    assert [(each.step, each.total) for each in said] == [(step, 6) for step in range(1, 7)]
    assert f"resumed at step {last}" in printed
    assert (folder / "out" / "adapter" / "adapter_model.safetensors").is_file()
    assert not list((folder / "out").glob("checkpoint.*"))
