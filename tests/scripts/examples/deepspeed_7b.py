import argparse

import deepspeed
import torch
from transformers import AutoModelForCausalLM

ds_config = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 8,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "none"}},
}
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
parser.add_argument("--max_steps", type=int, default=5000)
parser = deepspeed.add_config_arguments(parser)
args = parser.parse_args()
SEQ_LEN = 2048
bf16 = True

model = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.1", torch_dtype=torch.bfloat16)
engine, optimizer, _, _ = deepspeed.initialize(args=args, model=model, config=ds_config)
for step in range(args.max_steps):
    batch = next(data)
    loss = engine(**batch).loss
    engine.backward(loss)
    engine.step()
    if step % 500 == 0:
        engine.save_checkpoint("checkpoints", tag=f"step{step}")
