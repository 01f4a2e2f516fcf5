import functools

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from transformers import LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

BATCH = 2
SEQ_LENGTH = 4096
dtype = torch.bfloat16

dist.init_process_group("nccl")
policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={LlamaDecoderLayer})
model = LlamaForCausalLM.from_pretrained("meta-llama/Meta-Llama-3-8B")
model.gradient_checkpointing_enable()
model = FSDP(model, auto_wrap_policy=policy, mixed_precision=MixedPrecision(param_dtype=dtype))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
num_steps = 10_000
for step in range(num_steps):
    batch = next(loader)
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
