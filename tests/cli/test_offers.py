"""`bloom providers offers`: for numbers and for scripts, with reasons; never starts anything."""

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from gpubloom.cli.app import app
from gpubloom.plan import Hardware
from tests.errors import printed

SCRIPT = """
import torch
from transformers import Trainer, TrainingArguments, AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("gpt2", torch_dtype=torch.bfloat16).cuda()
arguments = TrainingArguments("out", per_device_train_batch_size=8, max_steps=2000, bf16=True)
Trainer(model, arguments).train(resume_from_checkpoint=True)
"""


@pytest.fixture(autouse=True)
def _no_gpu_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpubloom.plan.detect_hardware", lambda: Hardware.parse("64 GB host, 8 cores"))
    monkeypatch.delenv("BLOOM_PRICES", raising=False)


def bloom_offers(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(app, ["providers", "offers", *arguments], env={"COLUMNS": "120", **environment})


def test_figures_become_a_table_with_the_reasons_for_the_choice() -> None:
    done = bloom_offers("--memory", "12", "--hours", "4")
    assert done.exit_code == 0, done.output
    assert "12 GB, 4 hours on T4" in done.output
    assert "Recommended: RTX A4000 at RunPod." in done.output
    assert "a good balance" in done.output
    assert "→" in done.output
    assert "Excluded offers" not in done.output


def test_all_shows_what_was_not_offered_and_why() -> None:
    done = bloom_offers("--memory", "12", "--hours", "4", "--all")
    assert "Vast is available through SkyPilot, which is not set up." in done.output
    with_it = bloom_offers("--memory", "12", "--hours", "4", "--all", "--skypilot")
    assert "which is not set up" not in with_it.output


def test_a_script_is_read_and_what_it_does_not_say_is_called_assumed(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    answer = json.loads(bloom_offers(str(script), "--json").output)
    assert answer["need"]["bf16"] is True
    assert answer["offers"][0]["recommended"] is True
    assert answer["offers"][0]["reasons"]
    assert not [offer for offer in answer["offers"] if offer["gpu"] == "T4"]
    assert "bfloat16" in next(each["reason"] for each in answer["excluded"] if each["gpu"] == "T4")
    bare = tmp_path / "bare.py"
    bare.write_text("import torch\nmodel = torch.nn.Linear(8, 8).cuda()\n")
    assert "hours (assumed)" in bloom_offers(str(bare)).output
    told = json.loads(bloom_offers(str(bare), "--hours", "3", "--memory", "10", "--json").output)
    assert told["need"]["hours"] == {"low": 3, "likely": 3, "high": 3}
    assert told["need"]["assumed"] == []


def test_the_total_is_part_of_the_json() -> None:
    [*offers] = json.loads(bloom_offers("--memory", "12", "--hours", "4", "--json").output)["offers"]
    for offer in offers:
        parts = ("compute", "storage", "network", "start_up")
        assert offer["cost"]["total"]["likely"] == pytest.approx(
            sum(offer["cost"][part]["likely"] for part in parts)
        )


def test_this_machine_is_among_them_when_it_has_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpubloom.plan.detect_hardware", lambda: Hardware.parse("RTX 4090, 64 GB host"))
    done = bloom_offers("--memory", "12", "--hours", "4")
    assert "Recommended: RTX 4090 at This machine." in done.output


def test_prices_of_ones_own_are_used(tmp_path: Path) -> None:
    own = tmp_path / "prices.json"
    row = {
        "provider": "lambda", "gpu": "A10", "memory_gb": 24, "kind": "on_demand", "hourly": 0.1,
        "source": "our contract", "read_on": "2099-01-01",
    }  # fmt: skip
    own.write_text(json.dumps({"rows": [row]}))
    done = bloom_offers("--memory", "12", "--hours", "4", BLOOM_PRICES=str(own))
    assert "Recommended: A10 at Lambda." in done.output
    own.write_text("{")
    done = bloom_offers("--memory", "12", "--hours", "4", BLOOM_PRICES=str(own))
    assert (done.exit_code, printed(done.stderr)) == (2, ["not_json"])


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], "invalid_option"),
        (["--memory", "12"], "invalid_option"),
        (["missing.py"], "unreadable_file"),
        (["."], "unreadable_file"),
        (["--memory", "12", "--hours", "1", "--on", "Voodoo"], "unknown_gpu"),
        (["--memory", "12", "--hours", "1", "--provider", "acme"], "unknown_provider"),
        (["--memory", "12", "--hours", "1", "--credit", "modal"], "invalid_option"),
        (["--memory", "12", "--hours", "1e9"], "need_out_of_range"),
    ],
)
def test_what_cannot_be_answered_says_why(arguments: list[str], code: str) -> None:
    done = bloom_offers(*arguments)
    assert (done.exit_code, printed(done.stderr)) == (2, [code]), done.output


def test_a_job_that_nothing_can_run_is_an_answer_without_offers() -> None:
    done = bloom_offers("--memory", "900", "--hours", "1")
    assert done.exit_code == 1
    assert "No known offer can run this job" in done.output


def test_nobody_is_told_to_rent_a_gpu_for_a_script_that_uses_none(tmp_path: Path) -> None:
    script = tmp_path / "count.py"
    script.write_text("for step in range(100):\n    print(step)\n")
    done = bloom_offers(str(script))
    assert "Recommended:" not in done.output
    assert "The job needs no GPU" in done.output
    # Who names a service, or a number of GPUs, means it.
    assert "Recommended:" in bloom_offers(str(script), "--provider", "modal").output
    assert "Recommended:" in bloom_offers(str(script), "--gpus", "1").output
