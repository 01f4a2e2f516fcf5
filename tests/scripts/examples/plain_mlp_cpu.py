import torch
from torch import nn

device = torch.device("cpu")
model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
x, y = torch.randn(1000, 784), torch.randint(0, 10, (1000,))
for epoch in range(20):
    loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"Epoch {epoch + 1}/20 loss: {loss.item():.4f}")
