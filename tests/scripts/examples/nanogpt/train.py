"""
Trains a GPT. On one GPU: python train.py --batch_size=32 --compile=False
On several: torchrun --standalone --nproc_per_node=4 train.py
"""

import os
import pickle
import time

import numpy as np
import torch
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP

from model import GPT, GPTConfig

out_dir = 'out'
eval_interval = 2000
log_interval = 1
eval_iters = 200
always_save_checkpoint = True
init_from = 'scratch'  # 'scratch' or 'resume' or 'gpt2*'
wandb_log = False
dataset = 'openwebtext'
gradient_accumulation_steps = 5 * 8
batch_size = 12
block_size = 1024
n_layer = 12
n_head = 12
n_embd = 768
dropout = 0.0
learning_rate = 6e-4
max_iters = 600000
device = 'cuda'
dtype = 'bfloat16' if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else 'float16'
compile = True
config_keys = [k for k, v in globals().items() if not k.startswith('_') and isinstance(v, (int, float, bool, str))]
exec(open('configurator.py').read())
config = {k: globals()[k] for k in config_keys}

ddp = int(os.environ.get('RANK', -1)) != -1
if ddp:
    init_process_group(backend='nccl')
    ddp_world_size = int(os.environ['WORLD_SIZE'])
    device = f"cuda:{os.environ['LOCAL_RANK']}"
    gradient_accumulation_steps //= ddp_world_size
else:
    ddp_world_size = 1
print(f"tokens per iteration will be: {gradient_accumulation_steps * ddp_world_size * batch_size * block_size:,}")

data = np.memmap(os.path.join('data', dataset, 'train.bin'), dtype=np.uint16, mode='r')
model_args = dict(n_layer=n_layer, n_head=n_head, n_embd=n_embd, block_size=block_size, vocab_size=None)
iter_num, best_val_loss = 0, 1e9
if init_from == 'scratch':
    model_args['vocab_size'] = 50304
    model = GPT(GPTConfig(**model_args))
elif init_from == 'resume':
    checkpoint = torch.load(os.path.join(out_dir, 'ckpt.pt'), map_location=device)
    model = GPT(GPTConfig(**checkpoint['model_args']))
    model.load_state_dict(checkpoint['model'])
    iter_num = checkpoint['iter_num']
model.to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
if compile:
    model = torch.compile(model)
if ddp:
    model = DDP(model)

while True:
    if iter_num % eval_interval == 0:
        torch.save({'model': model.state_dict(), 'iter_num': iter_num}, os.path.join(out_dir, 'ckpt.pt'))
    for micro_step in range(gradient_accumulation_steps):
        ix = torch.randint(len(data) - block_size, (batch_size,))
        x = torch.stack([torch.from_numpy(data[i:i + block_size].astype(np.int64)) for i in ix]).to(device)
        logits, loss = model(x, x)
        (loss / gradient_accumulation_steps).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(f"iter {iter_num}: loss {loss.item():.4f}, time 1.00ms, mfu -100.00%")
    iter_num += 1
    if iter_num > max_iters:
        break
if ddp:
    destroy_process_group()
