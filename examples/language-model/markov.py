"""Tokens from a Markov source whose entropy is known, so that a language model's loss has a
floor.
"""

import math

import torch

# How likely each of a token's four successors is: 1.75 bits, or 1.2130 nats, per token.
LIKELY = (0.5, 0.25, 0.125, 0.125)
REACH = 6  # tokens further away say nothing of one that is masked


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
        which = torch.multinomial(
            torch.tensor(LIKELY), count * length, True, generator=generator
        ).view(count, length)
        tokens = torch.randint(self.size, (count, length), generator=generator)
        for place in range(1, length):
            tokens[:, place] = self.next[tokens[:, place - 1], which[:, place]]
        return tokens

    def floor(self, model: str, masked: float = 0.0, length: int = 3) -> float:
        """The lowest loss, nats per token. gpt: H(x2 | x1), what the last token leaves open.

        bert: what the nearest tokens leave open that are not masked, a before and b after: by the
        chain rule H(x | xa, xb) = h(a) + h(b) - h(a + b), where h(k) is the entropy k steps on.
        Each token is masked with probability `masked`; the mean is over all places of a sequence.
        """
        step = torch.zeros(self.size, self.size, dtype=torch.float64)
        for column, likely in enumerate(LIKELY):
            step.index_put_(
                (torch.arange(self.size), self.next[:, column]), torch.tensor(likely).double(), True
            )
        if model == "gpt":
            return entropy(step)
        h = [entropy(torch.linalg.matrix_power(step, steps)) for steps in range(2 * REACH + 1)]
        far = [*h, *[math.log(self.size)] * (4 * REACH)]  # so far on, nothing is known
        loss = 0.0
        for place in range(length):
            for a, likely in _nearest(place, masked):
                for b, too in _nearest(length - 1 - place, masked):
                    loss += likely * too * (far[a] + far[b] - far[a + b]) / length
        return loss


def _nearest(room: int, masked: float) -> list[tuple[int, float]]:
    """How far the nearest token is that is not masked, among so many, and how likely; beyond REACH
    it is of no use.
    """
    near = [(far, (1 - masked) * masked ** (far - 1)) for far in range(1, min(room, REACH) + 1)]
    return [*near, (2 * REACH + 1, 1 - sum(likely for _, likely in near))]


def entropy(rows: torch.Tensor) -> float:
    """Mean entropy of rows of probabilities, in nats: the rate of a source whose tokens are equally
    frequent.
    """
    return float(torch.special.entr(rows).sum(dim=1).mean())
