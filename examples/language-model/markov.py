"""Tokens from a Markov source whose entropy is known, so that a language model's loss has a floor."""

import torch

# How likely each of a token's four successors is: 1.75 bits, or 1.2130 nats, per token.
LIKELY = (0.5, 0.25, 0.125, 0.125)


class Markov:
    """A first-order source over `size` tokens. Its table is the same for every seed of a run.

    Each of the four successors is a permutation of all tokens, so all tokens are equally frequent.
    """

    def __init__(self, size: int) -> None:
        drawn = torch.Generator().manual_seed(0)
        self.next = torch.stack([torch.randperm(size, generator=drawn) for _ in LIKELY], dim=1)
        self.size = size

    def draw(self, count: int, length: int, generator: torch.Generator) -> torch.Tensor:
        """Tokens of `count` sequences, int64 of (count, length)."""
        which = torch.multinomial(torch.tensor(LIKELY), count * length, True, generator=generator).view(count, length)
        tokens = torch.randint(self.size, (count, length), generator=generator)
        for place in range(1, length):
            tokens[:, place] = self.next[tokens[:, place - 1], which[:, place]]
        return tokens

    def floor(self, model: str) -> float:
        """The lowest loss, nats per token. gpt: H(x2 | x1), what the last token leaves open. bert: H(x2 | x1, x3).

        By the chain rule H(x2 | x1, x3) = H(x2 | x1) + H(x3 | x2) - H(x3 | x1); a masked neighbour makes it more.
        """
        step = torch.zeros(self.size, self.size, dtype=torch.float64)
        for column, likely in enumerate(LIKELY):
            step.index_put_((torch.arange(self.size), self.next[:, column]), torch.tensor(likely).double(), True)
        one, two = entropy(step), entropy(step @ step)
        return one if model == "gpt" else 2 * one - two


def entropy(rows: torch.Tensor) -> float:
    """Mean entropy of rows of probabilities, in nats: the rate of a source whose tokens are equally frequent."""
    return float(torch.special.entr(rows).sum(dim=1).mean())
