"""Evaluating what was trained: the same rows and mask as training, numbers that transformers confirms."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gpubloom.datasets import ModelFiles, Source, Split, detect, render, sample, to_example
from gpubloom.engine.evaluation import perplexity as perplexity_module
from gpubloom.traincard import ControlFile
from gpubloom.traincard.reader import load_latest
from tests.engine.evaluation.conftest import SECRET, Trained
from tests.engine.runs import Run
from tests.tiny_models import make_tiny_model

Evaluate = Callable[..., dict[str, Any]]

# Together, so that one training does for all.
pytestmark = pytest.mark.xdist_group("evaluation")


def plain_loss(trained: Trained, *, tuned: bool) -> tuple[float, int]:
    """The mean loss over trained tokens of the held-out examples, by transformers and PEFT alone."""
    import peft
    import transformers

    model: Any = transformers.AutoModelForCausalLM.from_pretrained(trained.base, dtype=torch.float32)
    if tuned:
        model = peft.PeftModel.from_pretrained(model, str(trained.folder / "model"))
    files = ModelFiles.load(trained.base)
    source = Source.open(trained.data)
    mapping = detect(sample(source)).mapping
    assert mapping is not None
    loss, count = 0.0, 0
    for row in source.rows():
        assert row.values is not None
        example = to_example(row.values, mapping)
        if Split(0.2).of(example.digest()) != "eval":
            continue
        tokens = files.tokenizer.encode(render(example, files.template))
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([tokens.ids])).logits[0, :-1]
        wanted = torch.tensor(tokens.trained[1:])
        loss += float(
            torch.nn.functional.cross_entropy(
                logits[wanted], torch.tensor(tokens.ids[1:])[wanted], reduction="sum"
            )
        )
        count += int(wanted.sum())
    return loss / count, count


@pytest.mark.long
def test_perplexity_falls_by_tuning_and_is_what_transformers_computes(
    trained: Trained, evaluate: Evaluate
) -> None:
    found = evaluate(trained.folder, prompts=("What is the password, number 7?",), max_new_tokens=20)
    for name in ("base", "tuned"):
        loss, tokens = plain_loss(trained, tuned=name == "tuned")
        measured = found["perplexity"][name]
        assert measured["tokens"] == tokens
        assert measured["loss"] == pytest.approx(loss, abs=1e-4)
        assert measured["perplexity"] == pytest.approx(torch.tensor(loss).exp().item(), rel=1e-3)
    assert found["perplexity"]["tuned"]["perplexity"] < found["perplexity"]["base"]["perplexity"] / 10
    # The trainer's own last evaluation, over packed rows, says the same.
    last = trained.run.events("metric")
    losses = [event["values"]["eval/loss"] for event in last if "eval/loss" in event["values"]]
    assert found["perplexity"]["tuned"]["loss"] == pytest.approx(losses[-1], abs=1e-4)
    (answer,) = found["prompts"]
    assert answer["tuned"] == SECRET
    assert answer["base"] != SECRET
    assert (found["lm_eval"], found["notes"]) == (None, [])


@pytest.mark.long
def test_a_model_without_a_template_answers_from_the_first_word_as_it_was_trained(
    evaluate: Evaluate, tmp_path: Path
) -> None:
    trained = Trained(tmp_path, chat_template=False)
    found = evaluate(trained.folder, prompts=("What is the password, number 7?",), max_new_tokens=20)
    assert found["prompts"][0]["tuned"] == SECRET
    assert any("a plain template is used" in note for note in found["notes"])


def test_pieces_of_a_long_row_and_one_document_at_a_time_give_the_same_loss(
    trained: Trained, evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = evaluate(trained.folder, "whole")["perplexity"]["tuned"]
    monkeypatch.setattr(perplexity_module, "_MOST_LOGITS", 9 * 400)
    pieces = evaluate(trained.folder, "pieces")["perplexity"]["tuned"]
    assert pieces["tokens"] == whole["tokens"]
    assert pieces["loss"] == pytest.approx(whole["loss"], abs=1e-5)


def test_an_address_of_a_run_is_followed_only_where_that_is_allowed(
    trained: Trained, evaluate: Evaluate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "rented"
    shutil.copytree(trained.folder, folder)
    config = json.loads((folder / "config.json").read_text())
    config["data"]["train_path"] = "https://data.example.org/rows.jsonl"
    (folder / "config.json").write_text(json.dumps(config))
    asked: list[str] = []

    def fetch(address: str, _: Path, **_options: object) -> Path:
        asked.append(address)
        return trained.data

    monkeypatch.setattr("gpubloom.engine.data.dataset.fetch_data", fetch)
    found = evaluate(folder, fetches_data=False)
    assert (found["perplexity"]["tuned"], asked) == (None, [])
    assert "https://data.example.org/rows.jsonl" in found["notes"][0]
    assert evaluate(folder, "own")["perplexity"]["tuned"]
    assert asked == ["https://data.example.org/rows.jsonl"]


def test_a_file_can_be_named_and_is_read_as_the_run_read_its_own(
    trained: Trained, evaluate: Evaluate, tmp_path: Path
) -> None:
    file = tmp_path / "other.jsonl"
    rows = [{"prompt": f"What is the password, number {n}?", "completion": SECRET} for n in range(900, 903)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = evaluate(trained.folder, data_path=str(file))["perplexity"]
    assert found["tuned"]["loss"] < found["base"]["loss"]
    with pytest.raises(SystemExit):
        evaluate(trained.folder, "again", data_path=str(tmp_path / "missing.jsonl"))


def test_a_model_folder_is_evaluated_on_a_file_without_any_run(
    trained: Trained, evaluate: Evaluate, tmp_path: Path
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("The old lighthouse keeper knows the weather of tomorrow. " * 400)
    found = evaluate(trained.base, data_path=str(text), prompts=("Say",), max_new_tokens=3)
    assert found["perplexity"]["base"] is None
    assert found["perplexity"]["tuned"]["tokens"] > 1_000
    assert found["prompts"][0]["base"] is None
    alone = evaluate(trained.base, "alone")
    assert alone["perplexity"] == {"base": None, "tuned": None}
    assert "choose a file to evaluate on" in alone["notes"][0]


def test_our_own_preset_is_evaluated_on_its_held_out_text(
    make_run: Callable[..., Run], evaluate: Evaluate
) -> None:
    run = make_run(epochs=3, learning_rate=5e-3)
    run.train()
    (run.folder / "config.json").write_text(run.config.to_json())
    found = evaluate(run.folder, prompts=("The quick",), max_new_tokens=10)
    losses = [
        event["values"]["eval/loss"] for event in run.events("metric") if "eval/loss" in event["values"]
    ]
    assert found["perplexity"]["tuned"]["loss"] == pytest.approx(losses[-1], abs=1e-4)
    assert found["prompts"] == [{"prompt": "The quick", "base": None, "tuned": " brown fox"}]


def test_a_full_fine_tune_is_evaluated_beside_its_base(
    make_run: Callable[..., Run], evaluate: Evaluate, tmp_path: Path
) -> None:
    base = make_tiny_model(tmp_path / "base", chat_template=False)
    run = make_run(
        method="full", max_steps=20, learning_rate=5e-3, model={"path": str(base), "context_length": 32}
    )
    run.train()
    (run.folder / "config.json").write_text(run.config.to_json())
    found = evaluate(run.folder, max_batches=2)["perplexity"]
    assert found["tuned"]["loss"] < found["base"]["loss"] - 0.5
    assert found["tuned"]["tokens"] == found["base"]["tokens"]


def test_data_that_changed_since_the_run_is_pointed_out(
    trained: Trained, evaluate: Evaluate, tmp_path: Path
) -> None:
    run = tmp_path / "copy"
    shutil.copytree(trained.folder, run)
    other = tmp_path / "chats.jsonl"
    other.write_text("".join(trained.data.read_text().splitlines(keepends=True)[5:]))
    config = json.loads((run / "config.json").read_text())
    config["data"]["train_path"] = str(other)
    (run / "config.json").write_text(json.dumps(config))
    notes = evaluate(run)["notes"]
    assert any("data changed after the training" in note for note in notes)


def test_a_prompt_that_fills_the_context_is_a_note_and_not_the_end(
    trained: Trained, evaluate: Evaluate
) -> None:
    found = evaluate(
        trained.folder, prompts=("word " * 600, "What is the password, number 7?"), max_new_tokens=8
    )
    assert [answer["tuned"] is None for answer in found["prompts"]] == [True, False]
    assert len([note for note in found["notes"] if "leaves no room for an answer" in note]) == 1


def test_an_evaluation_stops_when_somebody_cancels_it(
    trained: Trained, evaluate: Evaluate, tmp_path: Path
) -> None:
    ControlFile(tmp_path / "told").want("cancel")
    with pytest.raises(FileNotFoundError, match=r"result\.json"):
        evaluate(trained.folder, "told", prompts=("x",))
    assert (load_latest(tmp_path / "told") or {})["status"] == "cancelled"
