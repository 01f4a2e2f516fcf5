import os

os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"
import torch
import torch.nn as nn
from torchvision.models import resnet101

net = nn.DataParallel(resnet101()).cuda()
steps = 1000
for i in range(steps):
    loss = net(torch.randn(96, 3, 224, 224).cuda()).mean()
    loss.backward()
