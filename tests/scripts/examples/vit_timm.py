import timm
import torch
from torch.utils.data import DataLoader
from torchvision import datasets

train_data = datasets.Food101("data", download=True)
loader = DataLoader(train_data, batch_size=64, shuffle=True, num_workers=4, pin_memory=True)
model = timm.create_model("vit_base_patch16_224", pretrained=True, num_classes=101).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
n_epochs = 5
for epoch in range(n_epochs):
    for images, labels in loader:
        with torch.amp.autocast("cuda", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images.cuda()), labels.cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
