"""Learns to read handwritten digits from 1,437 real images, in some seconds; README.md says how to start it."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from datasets.digits import load_digits
from launch import initialize
from networks.digits import DigitsNet
from progress import Progress, say

EPOCHS = 20
BATCH = 32

rank, size = initialize()
torch.manual_seed(rank)
digits, test = load_digits("train"), load_digits("test")
sampler = DistributedSampler(digits, size, rank)
batches = DataLoader(digits, BATCH, sampler=sampler)

model = DistributedDataParallel(DigitsNet())
updates = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
progress = Progress(every=100)
for epoch in range(EPOCHS):
    sampler.set_epoch(epoch)
    for images, labels in batches:
        updates.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        updates.step()
        progress.step(loss)
progress.end()

images, labels = test.tensors
with torch.no_grad():
    accuracy = (model.module(images).argmax(1) == labels).float().mean()
say(f"accuracy on {len(labels)} other images: {100 * accuracy:.1f} %")
dist.destroy_process_group()
