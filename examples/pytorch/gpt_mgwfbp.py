"""Has a small GPT learn generated text, whose entropy is known; README.md says how to start it."""

import torch
import torch.distributed as dist
import torch.nn.functional as F

from datasets.generated_text import LETTERS, GeneratedText
from launch import initialize
from mgcaffe.pytorch import MergedGradientParallel
from networks.gpt import GPT
from progress import Progress, say

STEPS = 1000
BATCH = 16
CONTEXT = 64

rank, size = initialize()
torch.manual_seed(rank)
text = GeneratedText()
say(
    f"generated text; the entropy of a letter, in nats: {text.even:.3f} if nothing is known, {text.after_one:.3f} after"
)
say(f"one known letter, {text.after_two:.3f} after two. So no loss stays below {text.lowest_loss(CONTEXT):.3f}")

model = MergedGradientParallel(GPT(LETTERS, CONTEXT, width=64, layers=2, heads=4))
updates = torch.optim.AdamW(model.parameters(), lr=3e-3)
progress = Progress(every=100, model=model)
generator = torch.Generator().manual_seed(rank)
for _ in range(STEPS):
    letters = text.batch(BATCH, CONTEXT + 1, generator)
    updates.zero_grad()
    loss = F.cross_entropy(model(letters[:, :-1]).flatten(0, 1), letters[:, 1:].flatten())
    loss.backward()
    updates.step()
    progress.step(loss)
progress.end()
dist.destroy_process_group()
