"""What comments say about a run: its duration, its GPU and its memory, with the line that says so."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpubloom.offers import Need, offers, shipped_prices
from gpubloom.offers.offer import hours_on
from gpubloom.scripts import Requirements, detect

CODE = """
import torch
model = torch.nn.Linear(8, 8).cuda()
epochs = 4
for epoch in range(epochs):
    model(torch.ones(8).cuda()).sum().backward()
"""
SKETCH = Path(__file__).parent / "examples" / "seed_sketch.py"


def said(comment: str, code: str = CODE) -> Requirements:
    return detect(f"{comment}\n{code}")


@pytest.mark.parametrize(
    ("comment", "low", "high", "gpu"),
    [
        ("# 2-8 hours runtime", 2, 8, None),
        ("# 2–8 hours runtime", 2, 8, None),
        ("# Runs for 2 to 8 hours", 2, 8, None),
        ("# ~3 hours on an A100", 3, 3, "A100"),
        ("# takes about 90 minutes", 1.5, 1.5, None),
        ("# training takes 1.5h", 1.5, 1.5, None),
        ("# took 2 days on one RTX 3090", 48, 48, "RTX 3090"),
        ("# about 40 min on 1x A6000", 2 / 3, 2 / 3, "RTX A6000"),
        ("# Training time: half an hour", 0.5, 0.5, None),
        ("# ~20 min per epoch on a T4", 4 / 3, 4 / 3, "T4"),
        ('"""Trains a tiny net.\n\nNeeds 3-4 hrs on an H100.\n"""', 3, 4, "H100"),
    ],
)
def test_a_comment_about_the_whole_run_is_taken_with_its_line(
    comment: str, low: float, high: float, gpu: str | None
) -> None:
    found = said(comment)
    assert found.stated_duration is not None
    stated = found.stated_duration.value
    assert (stated.low_hours, stated.high_hours) == (pytest.approx(low), pytest.approx(high))
    assert stated.gpu == gpu
    line = found.duration_hours.evidence[0]
    assert line.text in comment
    assert low * 0.99 <= found.duration_hours.value <= high * 1.01
    assert found.duration_hours.confidence == ("derived" if "epoch" in comment else "stated")
    if gpu is not None:
        assert found.reference_gpu == gpu


@pytest.mark.parametrize(
    "comment",
    [
        "# tokenizing takes 20 minutes",
        "# downloading the data takes 2 hours",
        "# save every 2 hours",
        "# time limit: 8 hours",
        "# timeout of 3 hours for the run",
        "# 24 hours in a day",
        "# takes 3 hours on a CPU",
        "# the token expires after 1 hour",
        "# takes 0 hours",
        "# takes 900000 days",
        "# loss after 3 hours of 2019",
        "# compiling takes a minute",
        "x = 'takes 3 hours on an A100'",
    ],
)
def test_hours_of_something_else_are_not_taken(comment: str) -> None:
    assert said(comment).stated_duration is None


def test_hours_for_another_number_of_gpus_are_ignored_with_a_note() -> None:
    found = said("# 3 hours on 8x A100")
    assert found.stated_duration is None
    assert any("is for 8 GPUs and was ignored" in note for note in found.notes)
    # A script that is started on several GPUs from outside does not say on how many; the comment does.
    several = said(
        "# 3 hours on 8x A100",
        "import torch\ntorch.distributed.init_process_group('nccl')\n"
        "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8).cuda())\n"
        "model(torch.ones(8).cuda()).sum().backward()\n",
    )
    assert several.stated_duration is not None
    assert (several.gpus.value, several.gpus.confidence) == (8, "stated")


def test_hours_per_epoch_without_a_number_of_epochs_are_not_taken() -> None:
    assert said("# 20 min per epoch", "import torch\ntorch.ones(8).cuda()\n").stated_duration is None


def test_hours_on_a_named_gpu_are_converted_to_others_and_hours_on_any_are_not() -> None:
    named = Need.from_requirements(said("# ~3 hours on an A100"))
    assert named.reference_gpu == "A100"
    assert hours_on(named, "A100").likely == 3
    assert hours_on(named, "T4").likely > 6
    assert hours_on(named, "H100").likely < 3
    unnamed = Need.from_requirements(said("# 2-8 hours runtime"))
    for gpu in ("T4", "A100", "H100"):
        span = hours_on(unnamed, gpu)
        assert (span.low, span.likely, span.high) == (2, 4, 8)
    found = offers(unnamed, prices=shipped_prices(), now=datetime(2026, 11, 15, tzinfo=UTC))
    assert all(any("without a GPU type" in text for text in offer.cautions) for offer in found.offers)


def test_hours_that_a_person_sets_replace_the_statement() -> None:
    found = said("# 2-8 hours runtime")
    mine = found.duration_hours.model_copy(update={"value": 1.0, "evidence": (), "reason": "Set by you."})
    need = Need.from_requirements(found.model_copy(update={"duration_hours": mine}))
    assert (need.hours.low, need.hours.high, need.hours_of_any_gpu) == (1, 1, False)


def test_the_snippet_of_the_product_description_gets_a_sensible_answer() -> None:
    found = detect(SKETCH)
    assert found.purpose.value == "train"
    assert (found.duration_hours.value, found.duration_hours.confidence) == (4, "stated")
    assert found.duration_hours.evidence[0].text == "# - 2-8 hours runtime"
    assert (found.gpu_memory_gb.value, found.gpu_memory_gb.confidence) == (16, "stated")
    assert found.gpu_memory_gb.evidence[0].text == "# - GPU with 8-16GB VRAM"
    assert found.parameters is not None
    assert found.parameters.value == 124_439_808
    made = offers(
        Need.from_requirements(found), prices=shipped_prices(), now=datetime(2026, 11, 15, tzinfo=UTC)
    )
    assert made.choice is not None
    assert made.choice.archetype == "usual run"
    assert made.choice.offer.memory_gb >= 16
    assert made.choice.offer.hours.likely == 4


def test_memory_that_was_computed_is_not_replaced_by_a_comment() -> None:
    code = (
        "import torch\nbatch_size = 12\nblock_size = 1024\nmax_iters = 5000\n"
        "model = GPT(vocab_size=50257, n_layer=12, n_head=12, n_embd=768).to('cuda')\nloss.backward()\n"
    )
    found = said("# needs 80 GB VRAM", code)
    assert found.gpu_memory_gb.confidence == "derived"
    assert found.gpu_memory_gb.value < 40
