import torch
from torch import nn

EMBED, HIDDEN, VOCAB = 256, 1024, 33_278


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, EMBED)
        self.lstm = nn.LSTM(EMBED, HIDDEN, num_layers=2, batch_first=True)
        self.out = nn.Linear(HIDDEN, VOCAB)


model = Model().to("cuda")
bptt, bs, n_epochs = 70, 40, 40
for epoch in range(1, n_epochs + 1):
    for batch in batches(bs):
        loss = model(batch)
        loss.backward()
