"""A Trainer with evaluation, rotated checkpoints and counted tokens."""

from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from gpubloom.traincard.adapters import HFTrainCardCallback


class Rows(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    def __init__(self, count: int) -> None:
        self.tokens = torch.randint(0, 64, (count, 16), generator=torch.Generator().manual_seed(count))

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[row], "labels": self.tokens[row]}


def main() -> None:
    torch.manual_seed(0)
    size: dict[str, Any] = {"vocab_size": 64, "n_positions": 16, "n_embd": 32, "n_layer": 1, "n_head": 2}
    trainer = Trainer(
        model=GPT2LMHeadModel(GPT2Config(**size, bos_token_id=0, eos_token_id=0)),
        args=TrainingArguments(
            output_dir="out",
            per_device_train_batch_size=4,
            num_train_epochs=3,
            logging_steps=2,
            eval_strategy="epoch",
            save_strategy="epoch",
            save_total_limit=2,
            report_to=[],
            use_cpu=True,
            learning_rate=1e-3,
            include_num_input_tokens_seen=True,
            load_best_model_at_end=True,
        ),
        train_dataset=Rows(40),
        eval_dataset=Rows(12),
        callbacks=[HFTrainCardCallback()],
    )
    trainer.train()


main()
