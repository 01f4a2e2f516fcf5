"""torchrun --nproc_per_node=2 ddp_torchrun.py"""
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group(backend="nccl")
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
model = torch.nn.TransformerEncoder(
    torch.nn.TransformerEncoderLayer(d_model=512, nhead=8, dim_feedforward=2048), num_layers=6
).cuda()
model = DistributedDataParallel(model, device_ids=[local_rank])
vocab_size = 32000
seq_len = 512
d_model = 512
batch_size = 32
total_steps = 20_000
for step in range(total_steps):
    loss = model(torch.randn(seq_len, batch_size, d_model).cuda()).mean()
    loss.backward()
