"""Text that is generated: each letter depends on the two before it, by a random table, so that its entropy is known."""

from __future__ import annotations

import torch

LETTERS = 16
_SHARPNESS = 2.0


class GeneratedText:
    """A Markov chain of order two over 16 letters.

    Args:
        seed: of the table.

    Attributes:
        even: the entropy of a letter in nats if all were as frequent, ln 16.
        after_one: its entropy where the letter before it is known.
        after_two: the same for the two before it.
    """

    def __init__(self, seed: int = 0) -> None:
        scores = torch.randn(LETTERS, LETTERS, LETTERS, generator=torch.Generator().manual_seed(seed))
        chances = (_SHARPNESS * scores.double()).softmax(-1)
        pairs = torch.full((LETTERS, LETTERS), 1.0 / LETTERS**2, dtype=torch.float64)
        for _ in range(200):  # until the frequencies of pairs stay what they are
            pairs = torch.einsum("ab,abc->bc", pairs, chances)
        triples = pairs[:, :, None] * chances
        after_one = triples.sum(0) / triples.sum((0, 2))[:, None]
        self.even = float(torch.tensor(float(LETTERS)).log())
        self.after_one = float(-(triples.sum(0) * after_one.log()).sum())
        self.after_two = float(-(triples * chances.log()).sum())
        self._pairs = pairs.flatten()
        self._limits = chances.cumsum(-1)[..., :-1].float()

    def lowest_loss(self, length: int) -> float:
        """Return the lowest possible mean loss over texts whose every letter but the first is to be predicted.

        Args:
            length: how many are predicted; before the first of them only one letter is known.
        """
        return (self.after_one + (length - 1) * self.after_two) / length

    def batch(self, count: int, length: int, generator: torch.Generator) -> torch.Tensor:
        """Return `count` texts of `length` letters, as numbers (count, length)."""
        first = torch.multinomial(self._pairs, count, replacement=True, generator=generator)
        letters = [first // LETTERS, first % LETTERS]
        draws = torch.rand(length - 2, count, 1, generator=generator)
        for draw in draws:
            letters.append((draw > self._limits[letters[-2], letters[-1]]).sum(-1))
        return torch.stack(letters, 1)
