"""TRL's SFTTrainer on a few rows of text."""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from datasets import Dataset
from gpubloom.traincard.adapters import HFTrainCardCallback


def main() -> None:
    words = ["<pad>", "<eos>", "<unk>", *"abcdefgh"]
    tokens = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokens.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(words), n_positions=32, n_embd=32, n_layer=1, n_head=2, eos_token_id=1, bos_token_id=1
    )
    data = Dataset.from_dict({"text": ["a b c d e f g h"] * 24})
    trainer = SFTTrainer(
        model=GPT2LMHeadModel(config),
        args=SFTConfig(
            output_dir="out",
            per_device_train_batch_size=4,
            num_train_epochs=2,
            logging_steps=1,
            eval_strategy="epoch",
            save_strategy="epoch",
            report_to=[],
            use_cpu=True,
            bf16=False,
            max_length=16,
        ),
        train_dataset=data,
        eval_dataset=data.select(range(8)),
        processing_class=PreTrainedTokenizerFast(tokenizer_object=tokens, **special),
        callbacks=[HFTrainCardCallback()],
    )
    trainer.train()


main()
