import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision.datasets import CIFAR10
from vit_pytorch import ViT

model = ViT(image_size=32, patch_size=4, num_classes=10, dim=512, depth=6, heads=8, mlp_dim=1024).to("cuda:0")
loader = DataLoader(CIFAR10("data", download=True), batch_size=512, shuffle=True)
for epoch in range(100):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x.to("cuda:0")), y.to("cuda:0"))
        loss.backward()
