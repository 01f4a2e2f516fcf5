# Typical nanoGPT training script
import torch
from model import GPT

# Requires:
# - GPU with 8-16GB VRAM
# - 2-8 hours runtime
# - PyTorch with CUDA
# - Access to datasets (shakespeare, openwebtext)
# - Ability to save checkpoints
# - TensorBoard logging

model = GPT(vocab_size=50257, n_layer=12, n_head=12, n_embd=768)
model.to('cuda')
# ... training loop
