"""TRL behind the same config: same data, same numbers, same commands, same files."""

import json
import os
import shutil
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from gpubloom.backends import see_one_gpu
from gpubloom.engine import sample
from gpubloom.engine.checkpoint import list_checkpoints
from gpubloom.engine.optimizer.schedule import Schedule
from gpubloom.errors import InputError
from gpubloom.traincard import ControlFile, load_checkpoints
from tests.backends.conftest import MakeRun
from tests.backends.runs import Run
from tests.errors import raises

pytestmark = [
    pytest.mark.xdist_group("frameworks"),
    # Of the frameworks' own code; what this project does is still an error.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]


def test_full_training_has_the_losses_of_the_engine(make_run: MakeRun) -> None:
    """FP32, no dropout: the same batches, schedule and updates, in another order of additions."""
    ours, theirs = make_run("engine", backend="engine"), make_run("trl")
    assert ours.train() == theirs.train() == "completed"
    for name in ("train/loss", "eval/loss", "eval/accuracy", "train/grad_norm"):
        assert theirs.series(name) == pytest.approx(ours.series(name), rel=1e-5), name
    for name in ("train/learning_rate", "train/tokens_seen", "train/trained_tokens"):
        assert theirs.series(name) == pytest.approx(ours.series(name), rel=1e-12), name
    assert theirs.checkpoints() == ours.checkpoints()
    # Both divide by the time of the same step: the quotient is the tokens of a sample.
    lengths = [
        {step: tokens / samples[step] for step, tokens in run.series("train/tokens_per_second").items()}
        for run in (ours, theirs)
        if (samples := run.series("train/samples_per_second"))
    ]
    assert lengths[0] == pytest.approx(lengths[1], rel=1e-9)


@pytest.mark.long
def test_a_paused_and_resumed_run_has_the_weights_of_an_undisturbed_one(
    tuned: Run, make_run: MakeRun
) -> None:
    run = make_run(method="lora", lora={"rank": 4, "dropout": 0.1})
    control = ControlFile(run.folder)
    assert run.train(at={1: lambda: control.want("pause")}) == "paused"
    assert run.checkpoints() == ["step-00000002"]
    control.want("run")
    assert run.train(resume=True, at={4: lambda: "preempted"}) == "preempted"
    assert run.train(resume=True) == "completed"
    for name in ("train/loss", "train/learning_rate", "train/tokens_seen", "train/trained_tokens"):
        assert run.series(name) == tuned.series(name), name
    assert run.weights() == tuned.weights()


def test_an_extended_run_goes_on_with_the_schedule_of_its_new_length(tuned: Run, make_run: MakeRun) -> None:
    run = make_run(method="lora", lora={"rank": 4, "dropout": 0.1}, epochs=3)
    shutil.copytree(tuned.folder, run.folder)
    shutil.rmtree(run.folder / "model")
    assert run.train(resume=True) == "completed"
    schedule = Schedule.create(run.config.schedule, 9)
    rates = run.series("train/learning_rate")
    assert [rates[step] for step in (7, 8, 9)] == pytest.approx(
        [schedule.learning_rate(2e-3, step) for step in (7, 8, 9)], rel=1e-12
    )
    tokens = run.series("train/tokens_seen")
    assert tokens[9] == pytest.approx(tokens[3] * 3)
    assert run.events("progress")[-1]["total_steps"] == 9


def test_commands_are_obeyed_and_what_is_impossible_is_refused_with_a_reason(
    tuned: Run, make_run: MakeRun
) -> None:
    run = make_run(method="lora", lora={"rank": 4, "dropout": 0.1}, epochs=30)
    control = ControlFile(run.folder)
    commands = {
        1: lambda: control.set(
            {"learning_rate": 5e-4, "clip_norm": 0.01, "weight_decay": -1, "batch_size": 9}
        ),
        2: control.save,
        3: lambda: control.set({"eval_every_steps": 1}),
        4: lambda: control.want("cancel"),
    }
    assert run.train(at=commands) == "cancelled"
    assert not (run.folder / "model").exists()
    refused = next(event["refused"] for event in run.events("applied") if event.get("refused"))
    assert refused["weight_decay"] == "-1 is not a number of at least 0"
    assert refused["batch_size"].startswith("unknown setting")
    rates, schedule = run.series("train/learning_rate"), Schedule.create(run.config.schedule, 90)
    assert rates[1] == pytest.approx(schedule.learning_rate(2e-3, 1))
    # Told during step 1, taken up at the end of step 2.
    assert rates[3] == pytest.approx(schedule.learning_rate(5e-4, 3))
    assert run.checkpoints() == ["step-00000003"]
    assert sorted(run.series("eval/loss")) == [0, 3, 4, 5]


@pytest.mark.parametrize("where", ["", "model", "checkpoints/step-00000003"])
def test_what_was_tuned_is_found_and_continues_a_text(
    tuned: Run, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    sample.main([str(tuned.folder / where), "What is", "--max-tokens", "4", "--temperature", "0"])
    said = capsys.readouterr().out
    assert said.startswith("What is")
    assert len(said) > len("What is\n")


def test_the_exported_folder_carries_what_others_need(tuned: Run, base: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = tuned.folder / "model"
    assert (folder / "chat_template.jinja").read_text() == (base / "chat_template.jinja").read_text()
    assert AutoTokenizer.from_pretrained(folder).eos_token == "<|im_end|>"
    adapter = json.loads((folder / "adapter_config.json").read_text())
    assert (adapter["base_model_name_or_path"], adapter["r"]) == (str(base), 4)
    assert not list(folder.glob("*.bin"))
    PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), str(folder))


def test_checkpoints_are_listed_with_their_evaluation_and_the_best_is_marked(tuned: Run) -> None:
    listed = load_checkpoints(tuned.folder)
    losses = tuned.series("eval/loss")
    assert [entry["path"] for entry in listed["checkpoints"]] == [
        "checkpoints/step-00000003",
        "checkpoints/step-00000006",
    ]
    assert [entry["metrics"]["eval/loss"] for entry in listed["checkpoints"]] == [losses[3], losses[6]]
    assert listed["best"] == f"checkpoints/step-{min(losses, key=losses.__getitem__):08d}"


def test_a_damaged_checkpoint_is_named_and_not_continued(tuned: Run, make_run: MakeRun) -> None:
    run = make_run(method="lora", lora={"rank": 4, "dropout": 0.1}, epochs=3)
    shutil.copytree(tuned.folder, run.folder)
    newest = list_checkpoints(run.folder / "checkpoints")[-1]
    with (newest / "optimizer.pt").open("r+b") as file:
        file.seek(100)
        file.write(b"damage")
    with raises(ValueError, code="damaged_checkpoint", match=r"step-00000006.*optimizer\.pt"):
        run.train(resume=True)


def test_a_run_continued_on_other_data_is_refused(tuned: Run, make_run: MakeRun, tmp_path: Path) -> None:
    from tests.backends.runs import write_examples

    data = {"kind": "examples", "train_path": str(write_examples(tmp_path / "other.jsonl", 40))}
    run = make_run(method="lora", lora={"rank": 4, "dropout": 0.1}, epochs=3, data=data)
    shutil.copytree(tuned.folder, run.folder)
    with raises(ValueError, code="data_changed"):
        run.train(resume=True)


@pytest.mark.parametrize(
    ("device", "visible", "then", "called"),
    [
        ("auto", None, "0", "auto"),
        ("cuda:1", None, "1", "cuda"),
        ("cuda:1", "4,7", "7", "cuda"),
        ("cuda:2", "4,7", "4,7", "cuda:2"),
        ("cuda", "3", "3", "cuda"),
        ("cpu", None, None, "cpu"),
    ],
)
def test_only_the_gpu_to_train_on_is_seen(
    monkeypatch: pytest.MonkeyPatch, device: str, visible: str | None, then: str | None, called: str
) -> None:
    # Set first, so that it is put back as it was.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible or "")
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert see_one_gpu(device) == called
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == then


def test_data_with_a_token_that_the_model_does_not_know_is_refused(
    make_run: MakeRun, base: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(base, folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_tokens(["<image>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    (tmp_path / "images.txt").write_text("An <image> of the harbour.\n" * 90)
    run = make_run(
        model={"path": str(folder), "context_length": 64},
        data={"train_path": str(tmp_path / "images.txt")},
    )
    with raises(InputError, code="tokenizer_mismatch", match="<image>"):
        run.train()
