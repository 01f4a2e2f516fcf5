from dataclasses import dataclass, field

import torch
import wandb
from transformers import GPT2Config, GPT2LMHeadModel, HfArgumentParser


@dataclass
class Config:
    batch_size: int = 16
    seq_len: int = field(default=512, metadata={"help": "tokens per row"})
    train_steps: int = 30_000
    dtype: str = "bfloat16"
    save_dir: str = "ckpts"


cfg = HfArgumentParser(Config).parse_args_into_dataclasses()[0]
model = GPT2LMHeadModel(GPT2Config(n_layer=24, n_head=16, n_embd=1024, vocab_size=50257)).cuda()
wandb.init(project="gpt")
for step in range(cfg.train_steps):
    loss = model(**next(batches)).loss
    loss.backward()
    if step % 1000 == 0:
        torch.save({"model": model.state_dict(), "step": step}, f"{cfg.save_dir}/{step}.pt")
