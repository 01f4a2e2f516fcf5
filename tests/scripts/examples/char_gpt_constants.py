# character-level GPT in a single file
import torch
import torch.nn as nn
from torch.nn import functional as F

BATCH_SIZE = 64
BLOCK_SIZE = 256
MAX_ITERS = 5_000
N_EMBD = 384
N_HEAD = 6
N_LAYER = 6
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

with open("input.txt", encoding="utf-8") as f:
    text = f.read()
chars = sorted(set(text))
vocab_size = 65


class Head(nn.Module):
    def __init__(self, head_size):
        super().__init__()
        self.key = nn.Linear(N_EMBD, head_size, bias=False)


def main():
    model = Model().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for it in range(MAX_ITERS):
        xb, yb = get_batch()
        logits, loss = model(xb, yb)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    torch.save(model.state_dict(), "model.pt")


if __name__ == "__main__":
    main()
