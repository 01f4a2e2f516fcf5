import torch
from model import GPT

model = GPT(vocab_size=50257, n_layer=12, n_head=12, n_embd=768)
model.to('cuda')
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4)
for step in range(5000):
    x, y = get_batch('train')
    loss = model(x, y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
