"""Trains a small GPT on characters. Settings are changed on the command line: --max_iters=500"""

import os
import sys
import time
from ast import literal_eval

import torch
from model import GPT

out_dir = "out"
dataset = "verses"
init_from = "scratch"  # or: resume
eval_interval = 50
eval_iters = 4
log_interval = 1
batch_size = 8
block_size = 32
n_layer = 2
n_head = 2
n_embd = 32
dropout = 0.0
learning_rate = 1e-3
max_iters = 150
seed = 1337
device = "cuda" if torch.cuda.is_available() else "cpu"

for word in sys.argv[1:]:
    key, _, text = word.removeprefix("--").partition("=")
    assert key in globals(), f"there is no setting {key}"
    try:
        globals()[key] = literal_eval(text)
    except (ValueError, SyntaxError):
        globals()[key] = text
    print(f"Overriding: {key} = {globals()[key]}")

print(f"tokens per iteration will be: {batch_size * block_size:,}")
torch.manual_seed(seed)
torch.set_num_threads(1)

with open(os.path.join("data", dataset, "input.txt"), encoding="utf-8") as file:
    text = file.read()
characters = sorted(set(text))
ids = torch.tensor([characters.index(character) for character in text])
split = int(0.9 * len(ids))
parts = {"train": ids[:split], "val": ids[split:]}


def get_batch(part):
    data = parts[part]
    starts = torch.randint(len(data) - block_size - 1, (batch_size,))
    x = torch.stack([data[start : start + block_size] for start in starts])
    y = torch.stack([data[start + 1 : start + 1 + block_size] for start in starts])
    return x.to(device), y.to(device)


model = GPT(len(characters), block_size, n_layer, n_head, n_embd, dropout).to(device)
print(f"number of parameters: {sum(p.numel() for p in model.parameters()) / 1e6:.2f}M")
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
iter_num, best_val_loss = 0, 1e9
os.makedirs(out_dir, exist_ok=True)

if init_from == "resume":
    print(f"Resuming training from {out_dir}")
    checkpoint = torch.load(os.path.join(out_dir, "ckpt.pt"), map_location=device)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    iter_num, best_val_loss = checkpoint["iter_num"], checkpoint["best_val_loss"]


@torch.no_grad()
def estimate_loss():
    model.eval()
    losses = {
        part: sum(model(*get_batch(part)).item() for _ in range(eval_iters)) / eval_iters
        for part in ("train", "val")
    }
    model.train()
    return losses


while iter_num <= max_iters:
    started = time.time()
    if iter_num % eval_interval == 0:
        losses = estimate_loss()
        print(f"step {iter_num}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}")
        best_val_loss = min(best_val_loss, losses["val"])
        if iter_num > 0:
            state = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "iter_num": iter_num,
                "best_val_loss": best_val_loss,
            }
            print(f"saving checkpoint to {out_dir}")
            torch.save(state, os.path.join(out_dir, "ckpt.pt.new"))
            os.replace(os.path.join(out_dir, "ckpt.pt.new"), os.path.join(out_dir, "ckpt.pt"))
    loss = model(*get_batch("train"))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if iter_num % log_interval == 0:
        took = (time.time() - started) * 1000
        print(f"iter {iter_num}: loss {loss.item():.4f}, time {took:.2f}ms, mfu -100.00%")
    iter_num += 1
