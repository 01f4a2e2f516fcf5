import argparse
import os

import torch
import torch.nn as nn
import torchvision
import torchvision.transforms as T
from torch.utils.data import DataLoader
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

parser = argparse.ArgumentParser(description="CIFAR-10")
parser.add_argument("--lr", default=0.1, type=float)
parser.add_argument("--batch-size", "-b", default=128, type=int)
parser.add_argument("--epochs", default=200, type=int)
parser.add_argument("--resume", "-r", action="store_true", help="resume from checkpoint")
args = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
trainset = torchvision.datasets.CIFAR10(root="./data", train=True, download=True, transform=T.ToTensor())
trainloader = DataLoader(trainset, batch_size=args.batch_size, shuffle=True, num_workers=2)
testset = torchvision.datasets.CIFAR10(root="./data", train=False, download=True, transform=T.ToTensor())
testloader = DataLoader(testset, batch_size=100, shuffle=False, num_workers=2)
net = torchvision.models.resnet18(num_classes=10).to(device)
writer = SummaryWriter("runs/cifar")
start_epoch = 0
if args.resume:
    checkpoint = torch.load("./checkpoint/ckpt.pth")
    net.load_state_dict(checkpoint["net"])
    start_epoch = checkpoint["epoch"]
optimizer = torch.optim.SGD(net.parameters(), lr=args.lr, momentum=0.9)
for epoch in range(start_epoch, args.epochs):
    for inputs, targets in tqdm(trainloader):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(inputs.to(device)), targets.to(device))
        loss.backward()
        optimizer.step()
    os.makedirs("checkpoint", exist_ok=True)
    torch.save({"net": net.state_dict(), "epoch": epoch}, "./checkpoint/ckpt.pth")
