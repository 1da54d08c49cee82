"""Trains a ResNet-18 on generated images of stripes in ten directions; README.md says how to start it."""

import torch
import torch.distributed as dist
import torch.nn.functional as F

from datasets.generated_images import CLASSES, striped_images
from launch import initialize
from mgcaffe.pytorch import MergedGradientParallel
from networks.resnet import resnet18
from progress import Progress, say

STEPS = 100
BATCH = 8

rank, size = initialize()
torch.manual_seed(rank)
module = resnet18(CLASSES)
say(f"{type(module).__module__}.{type(module).__name__} on generated images")

model = MergedGradientParallel(module)
updates = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9)
progress = Progress(every=10, model=model)
generator = torch.Generator().manual_seed(rank)
for _ in range(STEPS):
    images, labels = striped_images(BATCH, generator)
    updates.zero_grad()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    updates.step()
    progress.step(loss)
progress.end()

images, labels = striped_images(200, torch.Generator().manual_seed(1000))
model.eval()
with torch.no_grad():
    accuracy = (model.module(images).argmax(1) == labels).float().mean()
say(f"accuracy on {len(labels)} other generated images: {100 * accuracy:.1f} %")
dist.destroy_process_group()
