"""TRL's SFTTrainer with the engine's batches, schedule, weight decay, evaluation and checkpoint names.

Model, loss and loop are TRL's; the rest is the engine's, so that a run means the same whoever trains it. The
Hugging Face Trainer counts the micro-batches of an epoch, and the engine's loader makes all those of a step
at once. One item of the dataset here is one micro-batch, so that both agree on what comes next, also after a
resume.
"""

import copy
import importlib
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset

import datasets  # type: ignore[import-untyped]
from gpubloom.backends.loading import Loaded
from gpubloom.engine.data import Batch, Loader
from gpubloom.engine.data.loader import eval_batches
from gpubloom.engine.data.rows import IGNORED, Rows
from gpubloom.engine.evaluation.paired import BatchLosses, PairedChange, batches_for_pairs
from gpubloom.engine.hardware import Compute
from gpubloom.engine.models.packed_documents import document_starts
from gpubloom.engine.optimizer.schedule import Schedule
from gpubloom.json_files import read_json
from gpubloom.plan import TrainConfig
from gpubloom.plan.rope import scaled_settings

# What a step counts, told with its first micro-batch; the model does not get to see it.
COUNTS = "counts"
# Tokens of each document by which a model is tried out, and the share of its logits that is rounding.
_PROBE_LENGTH, _ROUNDING = 6, 0.1


@dataclass(frozen=True)
class Counts:
    """Tokens of the data in a step, how many of them are trained, and its examples."""

    tokens: int
    trained: int
    samples: int


class MicroBatches(Dataset[dict[str, Any]]):
    """An epoch's micro-batches by number."""

    def __init__(self, loader: Loader, accumulation: int) -> None:
        self._loader = loader
        self._accumulation = accumulation
        self._epoch = 0
        self._coming: Iterator[Batch] | None = None
        self._at: tuple[int, Batch] | None = None

    def set_epoch(self, epoch: int) -> None:
        """Called when an epoch begins: each has an order of its own."""
        self._epoch, self._coming, self._at = epoch, None, None

    def __len__(self) -> int:
        return self._loader.steps_per_epoch * self._accumulation

    def __getitem__(self, number: int) -> dict[str, Any]:
        step, micro = divmod(number, self._accumulation)
        return model_inputs(self._batch(step), micro)

    def _batch(self, step: int) -> Batch:
        at = -1 if self._at is None else self._at[0]
        if self._at is None or at != step:
            if self._coming is None or step != at + 1:
                self._loader.restore({"epoch": self._epoch, "position": step})
                self._coming = self._loader.rest_of_epoch()
            self._at = step, next(self._coming)
        return self._at[1]


def data_loader(loader: Loader, accumulation: int, *, pinned: bool) -> DataLoader[dict[str, Any]]:
    """A torch DataLoader over the micro-batches, in order."""
    return DataLoader(
        MicroBatches(loader, accumulation), batch_size=1, collate_fn=_only_one, pin_memory=pinned
    )


def model_inputs(batch: Batch, micro: int) -> dict[str, Any]:
    """What a causal language model of transformers is called with for one micro-batch."""
    tokens, targets = batch.tokens_ABT[micro], batch.targets_ABT[micro]
    packed = batch.documents_ABT
    documents = torch.zeros_like(tokens) if packed is None else packed[micro]
    # Labels stand where their token is; the loss moves them by one.
    labels = torch.cat((torch.full_like(targets[:, :1], IGNORED), targets), dim=1)
    last = targets[:, -1:]
    if bool((last == IGNORED).all()):
        labels = labels[:, :-1]
    else:
        # Rows of running text are trained to their last target, which is a token of the next row.
        tokens = torch.cat((tokens, last.clamp(min=0)), dim=1)
        documents = torch.cat((documents, documents[:, -1:]), dim=1)
    return {
        "input_ids": tokens,
        "labels": labels,
        # Positions that begin again are what tells transformers where a document ends.
        "position_ids": _positions(documents),
        COUNTS: Counts(batch.token_count, batch.trained_count, batch.samples) if micro == 0 else None,
    }


def _positions(documents: Tensor) -> Tensor:
    return torch.arange(documents.shape[1]) - document_starts(documents)


def _only_one(items: list[dict[str, Any]]) -> dict[str, Any]:
    return items[0]


# Without its types, which say of most things that they may be absent.
_trl: Any = importlib.import_module("trl")


def settings_of(
    config: TrainConfig, compute: Compute, *, batch_size: int, total_steps: int, folder: Path
) -> Any:
    """What the Trainer is told. When to evaluate and to save is not its decision."""
    on_gpu = compute.device.type == "cuda"
    return _trl.SFTConfig(
        output_dir=str(folder),
        max_steps=total_steps,
        per_device_train_batch_size=batch_size,
        gradient_accumulation_steps=config.accumulation,
        learning_rate=config.peak_learning_rate,
        weight_decay=config.optimizer.weight_decay,
        max_grad_norm=config.optimizer.clip_norm,
        seed=config.seed % 2**32,
        bf16=compute.precision == "bf16",
        fp16=compute.precision == "fp16",
        use_cpu=not on_gpu,
        gradient_checkpointing=on_gpu,
        dataloader_pin_memory=on_gpu,
        logging_steps=1,
        # A loss that is not finite must be seen, not replaced by the mean of those before it.
        logging_nan_inf_filter=False,
        save_strategy="no",
        eval_strategy="no",
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
        max_length=None,
        packing=False,
        dataset_kwargs={"skip_prepare_dataset": True},
    )


class SftTrainer(_trl.SFTTrainer):  # type: ignore[misc]
    """One run. `save_now` writes the checkpoint of this moment; `counts` is what the last step saw."""

    optimizer: Any
    lr_scheduler: Any
    control: Any

    def __init__(
        self,
        config: TrainConfig,
        loaded: Loaded,
        settings: Any,
        loader: Loader,
        eval_rows: Rows | None,
        schedule: Schedule,
        tokenizer: Any,
        callback: Any,
    ) -> None:
        self.config = config
        self._loader = loader
        self._eval_rows = eval_rows
        self._schedule = schedule
        self.save_now: Callable[[], None] = lambda: None
        self.counts = Counts(0, 0, 0)
        self.paired = PairedChange()
        super().__init__(
            model=loaded.model,
            args=settings,
            data_collator=lambda items: items,
            # It insists on a dataset of this type; batches come from get_train_dataloader.
            train_dataset=datasets.Dataset.from_dict({"input_ids": [[0]], "labels": [[0]]}),
            processing_class=tokenizer,
            peft_config=loaded.adapters,
            callbacks=[callback],
        )
        # As in the engine. TRL adds the balancing loss of a router to every loss, also of an evaluation.
        self.aux_loss_enabled = False
        text_config = loaded.model.config.get_text_config()
        if hasattr(text_config, "output_router_logits"):
            text_config.output_router_logits = False
        # A folder's own special tokens stay as they are, and the engine's tokenizer is what is saved.
        self.processing_class = None
        for parameter in self.model.parameters():
            if parameter.requires_grad:
                # TRL keeps the adapters of 4-bit models in BF16, where small updates are lost.
                parameter.data = parameter.data.float()

    def get_train_dataloader(self) -> Any:
        pinned = bool(self.args.dataloader_pin_memory)
        return self.accelerator.prepare(data_loader(self._loader, self.config.accumulation, pinned=pinned))

    def count_parameters(self) -> tuple[int, int]:
        """Trained parameters, and those of the model without adapters."""
        model: Any = self.accelerator.unwrap_model(self.model)
        if hasattr(model, "get_nb_trainable_parameters"):
            # It knows how many weights a 4-bit tensor packs.
            trained, every = model.get_nb_trainable_parameters()
            return int(trained), int(every - trained)
        sizes = [(each.numel(), each.requires_grad) for each in model.parameters()]
        return sum(size for size, trains in sizes if trains), sum(size for size, _ in sizes)

    def training_step(self, model: Any, inputs: dict[str, Any], *others: Any, **named: Any) -> Any:
        if (counts := inputs.pop(COUNTS)) is not None:
            self.counts = counts
        return super().training_step(model, inputs, *others, **named)

    def create_optimizer(self, model: Any = None) -> Any:
        """AdamW. Matrices decay; vectors do not."""
        if self.optimizer is None:
            asked = self.config.optimizer
            trained = [each for each in (model or self.model).parameters() if each.requires_grad]
            groups = [
                {"params": [each for each in trained if each.ndim >= 2], "weight_decay": asked.weight_decay},
                {"params": [each for each in trained if each.ndim < 2], "weight_decay": 0.0},
            ]
            self.optimizer = torch.optim.AdamW(
                [group for group in groups if group["params"]],
                lr=self.config.peak_learning_rate,
                betas=(asked.beta1, asked.beta2),
                eps=asked.eps,
                fused=True,
            )
        return self.optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        if self.lr_scheduler is None:
            # A scheduler counts from 0, a schedule from 1.
            self.lr_scheduler = LambdaLR(
                optimizer or self.optimizer, lambda done: self._schedule.learning_rate(1.0, done + 1)
            )
            self._created_lr_scheduler = True
        return self.lr_scheduler

    def set_learning_rate(self, peak: float) -> None:
        """The peak that the schedule scales, from the next step on."""
        scheduler = self.lr_scheduler
        scheduler.base_lrs = [peak] * len(scheduler.base_lrs)
        rates = [peak * scale(scheduler.last_epoch) for scale in scheduler.lr_lambdas]
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"], group["initial_lr"] = rate, peak
        scheduler._last_lr = rates

    def set_weight_decay(self, weight_decay: float) -> None:
        for group in self.optimizer.param_groups:
            if all(each.ndim >= 2 for each in group["params"]):
                group["weight_decay"] = weight_decay

    def _load_optimizer_and_scheduler(self, checkpoint: Any) -> None:
        """An extended run has another schedule than its checkpoint: rates are computed, not restored."""
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            self.set_learning_rate(self.config.peak_learning_rate)
            self.set_weight_decay(self.config.optimizer.weight_decay)

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Averages over all trained tokens, as the engine computes them, not over batches."""
        if self._eval_rows is None:
            return {}
        self._stop_dropout()
        losses, tokens, correct = [], [], 0.0
        size, count = batches_for_pairs(
            len(self._eval_rows), self._loader.batch_size, self.config.eval.max_batches
        )
        for batch in eval_batches(self._eval_rows, batch_size=size, max_batches=count):
            inputs = model_inputs(batch, 0)
            del inputs[COUNTS]
            trained = batch.trained_count
            mean, _logits, _labels = self.prediction_step(self.model, inputs, prediction_loss_only=True)
            losses.append(float(mean) * trained)
            tokens.append(trained)
            correct += self._metrics["eval"]["mean_token_accuracy"][-1] * trained
        self._metrics["eval"].clear()
        self.model.train()
        mean_loss = sum(losses) / sum(tokens)
        found = {
            "eval/loss": mean_loss,
            # exp overflows long before a loss stops being comparable.
            "eval/perplexity": math.exp(mean_loss) if mean_loss < 700 else math.inf,
            "eval/accuracy": correct / sum(tokens),
            **self.paired.add(BatchLosses.of(losses, tokens)),
        }
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, found)
        return found

    def _stop_dropout(self) -> None:
        """Evaluation mode, but for 4-bit layers: on a CPU they would repack their weights, and train on
        with other rounding."""
        self.model.eval()
        for module in self.model.modules():
            if type(module).__name__ == "Linear4bit":
                module.training = True

    @torch.no_grad()
    def next_logits(self, tokens: Tensor, length: int) -> Tensor:
        """Logits (1, V) of what follows the first `length` tokens; what stands behind them does not count."""
        self._stop_dropout()
        with self.accelerator.autocast():
            out = self.model(input_ids=tokens[:, :length].to(self.args.device), use_cache=False)
        self.model.train()
        logits: Tensor = out.logits[:, -1]
        return logits

    @torch.no_grad()
    def keeps_documents_apart(self) -> bool:
        """Whether a document is computed as if it stood alone in its row.

        Some models of transformers do not look at the positions that tell where a document begins.
        """
        self._stop_dropout()
        device, length = self.args.device, _PROBE_LENGTH
        own = torch.arange(2, 2 + length, device=device)
        positions = torch.arange(length, device=device).repeat(1, 2)
        found = []
        for others in (own + length, own + 2 * length):
            with self.accelerator.autocast():
                out = self.model(
                    input_ids=torch.cat((others, own))[None], position_ids=positions, use_cache=False
                )
            found.append(out.logits[:, length:].float())
        self.model.train()
        return bool((found[0] - found[1]).abs().max() <= _ROUNDING * found[0].std())

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        self.save_now()

    def save_training_state(self, folder: Path) -> None:
        """All that a resume needs besides the weights."""
        self._save_optimizer_and_scheduler(str(folder))
        self._save_scaler(str(folder))
        self._save_rng_state(str(folder))
        self.state.save_to_json(str(folder / "trainer_state.json"))

    def save_weights(self, folder: Path, turn_end: int | None) -> None:
        """The model in Hugging Face's layout, or the adapter in PEFT's. Texts end where a turn does."""
        generation = copy.deepcopy(self.model.generation_config)
        ends = generation.eos_token_id
        known = [] if ends is None else [ends] if isinstance(ends, int) else list(ends)
        if turn_end is not None and turn_end not in known:
            generation.eos_token_id = [*known, turn_end]
        if self.config.method == "full":
            self.model.save_pretrained(folder)
        else:
            # By default it would look up the base model to see whether its embeddings have changed.
            self.model.save_pretrained(folder, save_embedding_layers=False)
            assert self.config.model.path is not None
            # As it lies there: what was loaded in 4 bits says so of itself.
            settings = read_json(Path(self.config.model.path) / "config.json")
            model = self.config.model.model_copy(update={"context_length": self.config.context_length})
            text = json.dumps(scaled_settings(settings, model), indent=2) + "\n"
            (folder / "config.json").write_text(text, encoding="utf-8")
        generation.save_pretrained(folder)
