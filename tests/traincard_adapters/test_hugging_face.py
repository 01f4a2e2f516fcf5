"""The Hugging Face callback, with the real Trainer, TRL's SFTTrainer and a PEFT adapter."""

from pathlib import Path
from typing import Any

import pytest

from gpubloom.traincard import ControlFile, Reporter, load_checkpoints, load_latest, read_all
from tests.traincard_adapters.conftest import events_of, last_refusals, phases_of, series_of

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from gpubloom.traincard.adapters import HFTrainCardCallback  # noqa: E402

pytestmark = [
    pytest.mark.xdist_group("frameworks"),
    # Of the frameworks' own code; what this project does is still an error.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"),
]

ROWS, CONTEXT, VOCABULARY = 24, 8, 32


def tiny_model() -> Any:
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=CONTEXT,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        )
    )


def rows(count: int = ROWS) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(3, VOCABULARY, (count, CONTEXT), generator=generator)
    return [{"input_ids": row, "labels": row} for row in tokens]


class TellAt(transformers.TrainerCallback):  # type: ignore[misc]
    """Gives commands at a step, before the callback under test looks; remembers what the Trainer used."""

    def __init__(self, commands: dict[int, Any]) -> None:
        self.commands = commands
        self.rates: dict[int, float] = {}
        self.clips: dict[int, float] = {}
        self.decays: dict[int, list[float]] = {}

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if command := self.commands.get(state.global_step):
            command()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        groups = others["optimizer"].param_groups
        self.rates[state.global_step + 1] = groups[0]["lr"]
        self.decays[state.global_step + 1] = [group["weight_decay"] for group in groups]
        self.clips[state.global_step + 1] = args.max_grad_norm


def trainer_of(
    tmp_path: Path, callback: HFTrainCardCallback, commands: dict[int, Any] | None = None, **options: Any
) -> tuple[Any, TellAt]:
    settings = {
        "output_dir": str(tmp_path / "out"),
        "per_device_train_batch_size": 4,
        "max_steps": 6,
        "logging_steps": 1,
        "learning_rate": 1e-2,
        "weight_decay": 0.1,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        **options,
    }
    teller = TellAt(commands or {})
    trainer = transformers.Trainer(
        model=tiny_model(),
        args=transformers.TrainingArguments(**settings),
        train_dataset=rows(),
        eval_dataset=rows(8),
        callbacks=[teller, callback],
    )
    return trainer, teller


def test_every_value_the_trainer_logged_is_in_the_run_at_the_same_step(
    tmp_path: Path, run_dir: Path, reporter: Reporter
) -> None:
    trainer, _ = trainer_of(tmp_path, HFTrainCardCallback(reporter), eval_strategy="steps", eval_steps=3)
    trainer.train()
    history = trainer.state.log_history
    for logged, series in {
        "loss": "train/loss",
        "grad_norm": "train/grad_norm",
        "learning_rate": "train/learning_rate",
        "eval_loss": "eval/loss",
    }.items():
        expected = [(entry["step"], entry[logged]) for entry in history if logged in entry]
        assert series_of(run_dir, series) == expected
    assert len(series_of(run_dir, "train/loss")) == 6
    assert [step for step, _ in series_of(run_dir, "eval/loss")] == [3, 6]


@pytest.mark.parametrize("counted", [True, "non_padding"])
def test_curves_stay_curves_when_the_trainer_counts_its_input_tokens(
    tmp_path: Path, run_dir: Path, reporter: Reporter, counted: bool | str
) -> None:
    """With `include_num_input_tokens_seen` every log carries `train_runtime`, not only the totals."""
    callback = HFTrainCardCallback(reporter)
    trainer, _ = trainer_of(
        tmp_path, callback, include_num_input_tokens_seen=counted, eval_strategy="steps", eval_steps=3
    )
    trainer.train()
    history = trainer.state.log_history
    assert all("train_runtime" in entry for entry in history if "loss" in entry)
    for logged, series in {"loss": "train/loss", "grad_norm": "train/grad_norm"}.items():
        assert series_of(run_dir, series) == [
            (entry["step"], entry[logged]) for entry in history if logged in entry
        ]
    # Once a step, although the log of an evaluation has it as well.
    assert series_of(run_dir, "train/num_input_tokens_seen") == [
        (entry["step"], entry["num_input_tokens_seen"]) for entry in history if "loss" in entry
    ]
    # One speed a step, measured by the callback; the Trainer's is the mean since the start.
    assert [step for step, _ in series_of(run_dir, "train/tokens_per_second")] == [1, 2, 3, 4, 5, 6]
    assert series_of(run_dir, "train/runtime") == []
    latest = load_latest(run_dir)
    assert latest is not None
    assert latest["facts"]["train_loss"] == pytest.approx(history[-1]["train_loss"])


def test_totals_stay_facts_behind_a_callback_that_takes_a_key_out_of_the_log(
    tmp_path: Path, run_dir: Path, reporter: Reporter
) -> None:
    """The Trainer's own PrinterCallback removes `total_flos` from the log that callbacks share."""
    trainer, _ = trainer_of(tmp_path, HFTrainCardCallback(), include_num_input_tokens_seen=True)
    trainer.callback_handler.callbacks = [
        one for one in trainer.callback_handler.callbacks if not isinstance(one, HFTrainCardCallback)
    ]
    trainer.add_callback(HFTrainCardCallback(reporter))
    trainer.train()
    assert len(series_of(run_dir, "train/loss")) == 6
    latest = load_latest(run_dir)
    assert latest is not None
    assert "train_loss" in latest["facts"]


def test_speed_progress_facts_and_phases_are_recorded(
    tmp_path: Path, run_dir: Path, reporter: Reporter
) -> None:
    trainer, _ = trainer_of(
        tmp_path, HFTrainCardCallback(reporter), eval_strategy="steps", eval_steps=3, save_strategy="steps",
        save_steps=3,
    )  # fmt: skip
    trainer.train()
    samples = dict(series_of(run_dir, "train/samples_per_second"))
    tokens = dict(series_of(run_dir, "train/tokens_per_second"))
    seconds = dict(series_of(run_dir, "train/step_seconds"))
    assert samples.keys() == tokens.keys() == seconds.keys() == {1, 2, 3, 4, 5, 6}
    for step, value in samples.items():
        assert value * seconds[step] == pytest.approx(4)
        assert tokens[step] == pytest.approx(value * CONTEXT)
    latest = load_latest(run_dir)
    assert latest is not None
    assert (latest["step"], latest["total_steps"], latest["epoch"], latest["epochs"]) == (6, 6, 1.0, 1)
    assert latest["status"] == "completed"
    assert latest["facts"]["parameters"] == sum(p.numel() for p in trainer.model.parameters())
    assert latest["facts"]["global_batch_size"] == 4
    # The mean of the whole run is a fact, not one more point of the curve.
    assert latest["facts"]["train_loss"] == pytest.approx(trainer.state.log_history[-1]["train_loss"])
    assert phases_of(run_dir) == ["train", *["eval", "train", "save", "train"] * 2, "idle"]


def test_checkpoints_carry_path_size_metrics_and_which_is_best(
    tmp_path: Path, run_dir: Path, reporter: Reporter
) -> None:
    trainer, _ = trainer_of(
        tmp_path, HFTrainCardCallback(reporter), eval_strategy="steps", eval_steps=2, save_strategy="steps",
        save_steps=2, save_total_limit=2, load_best_model_at_end=True, metric_for_best_model="eval_loss",
    )  # fmt: skip
    trainer.train()
    reporter.flush()
    index = load_checkpoints(run_dir)
    assert index is not None
    assert index["best"] == trainer.state.best_model_checkpoint
    on_disk = {str(path) for path in (tmp_path / "out").glob("checkpoint-*")}
    assert {entry["path"] for entry in index["checkpoints"]} == on_disk
    assert len(events_of(run_dir, "checkpoint")) == 3
    for entry in index["checkpoints"]:
        files = [path for path in Path(entry["path"]).rglob("*") if path.is_file()]
        assert entry["size"] == sum(path.stat().st_size for path in files)
        assert entry["metrics"]["eval_loss"] == dict(series_of(run_dir, "eval/loss"))[entry["step"]]


@pytest.mark.long
def test_a_pause_saves_and_stops_and_the_run_continues_where_it_was(
    tmp_path: Path, run_dir: Path, reporter: Reporter
) -> None:
    file = ControlFile(run_dir)
    trainer, _ = trainer_of(tmp_path, HFTrainCardCallback(reporter), {2: lambda: file.want("pause")})
    trainer.train()
    assert trainer.state.global_step == 2
    latest = load_latest(run_dir)
    assert latest is not None
    assert latest["status"] == "paused"
    assert latest["checkpoint"]["step"] == 2
    saved = Path(latest["checkpoint"]["path"])
    assert (saved / "optimizer.pt").exists()
    reporter.close()

    file.want("run")
    with Reporter(run_dir, telemetry_seconds=0) as second:
        again, _ = trainer_of(tmp_path, HFTrainCardCallback(second))
        again.train(resume_from_checkpoint=str(saved))
    assert [event.fields["from_step"] for event in events_of(run_dir, "resumed")] == [2]
    assert [step for step, _ in series_of(run_dir, "train/loss")] == [1, 2, 3, 4, 5, 6]

    whole, _ = trainer_of(tmp_path / "whole", HFTrainCardCallback(run_dir=tmp_path / "whole-run"))
    whole.train()
    assert dict(series_of(run_dir, "train/loss")) == pytest.approx(
        dict(series_of(tmp_path / "whole-run", "train/loss"))
    )


def test_a_cancel_stops_without_saving(tmp_path: Path, run_dir: Path, reporter: Reporter) -> None:
    callback = HFTrainCardCallback(reporter)
    trainer, _ = trainer_of(tmp_path, callback, {2: lambda: ControlFile(run_dir).want("cancel")})
    trainer.train()
    latest = load_latest(run_dir)
    assert latest is not None
    assert (trainer.state.global_step, latest["status"]) == (2, "cancelled")
    assert not list((tmp_path / "out").glob("checkpoint-*"))


def test_a_save_makes_one_checkpoint_and_training_goes_on(
    tmp_path: Path, run_dir: Path, reporter: Reporter
) -> None:
    callback = HFTrainCardCallback(reporter)
    trainer, _ = trainer_of(tmp_path, callback, {3: lambda: ControlFile(run_dir).save()})
    trainer.train()
    assert trainer.state.global_step == 6
    assert [event.step for event in events_of(run_dir, "checkpoint")] == [3]
    assert events_of(run_dir, "applied")[0].fields["version"] == 1


def test_settings_change_while_it_trains_and_unknown_ones_are_refused(
    tmp_path: Path, run_dir: Path, reporter: Reporter
) -> None:
    file = ControlFile(run_dir)
    wanted = {
        "learning_rate": 5e-3,
        "weight_decay": 0.5,
        "clip_norm": 0.25,
        "eval_every_steps": 2,
        "save_every_steps": 5,
        "color": "red",
    }
    trainer, teller = trainer_of(
        tmp_path, HFTrainCardCallback(reporter), {2: lambda: file.set(wanted)}, lr_scheduler_type="linear",
        eval_strategy="epoch",
    )  # fmt: skip
    trainer.train()
    # The schedule goes on from the new rate: linear to zero over six steps.
    for step, rate in teller.rates.items():
        base = 1e-2 if step <= 2 else 5e-3
        assert rate == pytest.approx(base * (6 - (step - 1)) / 6)
    assert teller.decays[2] == [0.1, 0.0]
    assert teller.decays[3] == [0.5, 0.0]
    assert (teller.clips[2], teller.clips[3]) == (1.0, 0.25)
    assert [step for step, _ in series_of(run_dir, "eval/loss")][:2] == [2, 4]
    assert [event.step for event in events_of(run_dir, "checkpoint")] == [5]
    assert last_refusals(run_dir).keys() == {"color"}


@pytest.mark.parametrize("value", [-1, 0, "fast", True, float("nan"), 11])
def test_a_learning_rate_that_makes_no_sense_is_refused_and_training_goes_on(
    tmp_path: Path, run_dir: Path, reporter: Reporter, value: object
) -> None:
    command = {1: lambda: ControlFile(run_dir).set({"learning_rate": value})}
    trainer, _ = trainer_of(tmp_path, HFTrainCardCallback(reporter), command, max_steps=2)
    trainer.train()
    assert trainer.state.global_step == 2
    assert "learning_rate" in last_refusals(run_dir)


def test_an_exception_is_recorded_with_its_traceback(tmp_path: Path, run_dir: Path) -> None:
    callback = HFTrainCardCallback(run_dir=run_dir)

    def explode() -> None:
        raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")

    trainer, _ = trainer_of(tmp_path, callback, {2: explode})
    with pytest.raises(RuntimeError, match="out of memory"), callback.reporter:
        trainer.train()
    latest = load_latest(run_dir)
    assert latest is not None
    assert latest["status"] == "failed"
    assert "explode" in latest["error"]["traceback"]


def test_training_twice_with_one_callback_is_two_attempts(tmp_path: Path, run_dir: Path) -> None:
    callback = HFTrainCardCallback(run_dir=run_dir)
    trainer, _ = trainer_of(tmp_path, callback, max_steps=2)
    trainer.train()
    trainer.train()
    callback.reporter.close()
    starts = {event.attempt for event in read_all(run_dir) if event.kind == "start"}
    latest = load_latest(run_dir)
    assert latest is not None
    assert (starts, latest["status"]) == ({1, 2}, "completed")


def test_sft_with_a_lora_adapter_reports_what_trl_logs(
    tmp_path: Path, run_dir: Path, reporter: Reporter
) -> None:
    trl = pytest.importorskip("trl")
    peft = pytest.importorskip("peft")
    datasets = pytest.importorskip("datasets")
    file = ControlFile(run_dir)
    words = {word: number for number, word in enumerate(["<pad>", "<s>", "</s>", "a", "b", "c"])}
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    bare = Tokenizer(WordLevel(words, unk_token="<pad>"))
    bare.pre_tokenizer = Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=bare, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )
    trainer = trl.SFTTrainer(
        model=tiny_model(),
        args=trl.SFTConfig(
            output_dir=str(tmp_path / "out"),
            per_device_train_batch_size=2,
            max_steps=4,
            logging_steps=1,
            max_length=CONTEXT,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            disable_tqdm=True,
        ),
        train_dataset=datasets.Dataset.from_dict({"text": ["a b c a", "b c a b", "c a", "a a b"] * 4}),
        processing_class=tokenizer,
        peft_config=peft.LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM"),
        callbacks=[
            TellAt({1: lambda: file.set({"learning_rate": 1e-4}), 3: lambda: file.want("pause")}),
            HFTrainCardCallback(reporter),
        ],
    )
    trainer.train()
    history = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(history) == 3
    for name in history[0].keys() - {"step", "epoch"}:
        series = f"train/{name}" if "/" not in name else name
        assert series_of(run_dir, series) == [(entry["step"], entry[name]) for entry in history]
    tokens, seconds = series_of(run_dir, "train/tokens_per_second"), series_of(run_dir, "train/step_seconds")
    assert tokens[0][1] * seconds[0][1] == pytest.approx(history[0]["num_tokens"])
    latest = load_latest(run_dir)
    assert latest is not None
    assert latest["status"] == "paused"
    assert latest["facts"]["adapter/default"] == "LORA, rank 2"
    assert latest["facts"]["trainable_parameters"] < latest["facts"]["parameters"]
    assert (Path(latest["checkpoint"]["path"]) / "adapter_model.safetensors").exists()


def test_checkpoints_that_are_rotated_after_a_resume_are_no_longer_offered(
    tmp_path: Path, run_dir: Path
) -> None:
    options = {"save_strategy": "steps", "save_steps": 2, "save_total_limit": 2}
    for steps, resumes in ((4, None), (8, True)):
        callback = HFTrainCardCallback(run_dir=run_dir)
        trainer, _ = trainer_of(tmp_path, callback, max_steps=steps, **options)
        trainer.train(resume_from_checkpoint=resumes)
        callback.reporter.close()
    listed = [Path(entry["path"]) for entry in load_checkpoints(run_dir)["checkpoints"]]
    assert [path.name for path in listed] == ["checkpoint-6", "checkpoint-8"]
    assert all(path.exists() for path in listed)


def test_the_optimizer_is_named_as_the_trainer_names_it(
    tmp_path: Path, run_dir: Path, reporter: Reporter
) -> None:
    trainer, _ = trainer_of(tmp_path, HFTrainCardCallback(reporter), max_steps=1)
    trainer.train()
    reporter.close()
    assert (load_latest(run_dir) or {})["facts"]["optimizer"].startswith("adamw_torch")
