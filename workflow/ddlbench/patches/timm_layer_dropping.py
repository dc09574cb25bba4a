"""Progressive layer dropping (Zhang & He 2020, arXiv:2010.13369) for vision transformers of timm
1.0.

DeepSpeed only computes how much to drop (`theta`) and passes it to the model. timm's models drop
nothing by it, so this file makes their blocks do so; `train/frameworks/deepspeed.py` uses it. A
model whose blocks have not the branches that are meant is refused. DeepSpeed 0.19.8 computes no
`theta` any more (github.com/deepspeedai/DeepSpeed, issue 8489).
"""

from typing import Any

from ddlbench import patches


def guard() -> None:
    """Raise ReleaseError if DeepSpeed has no progressive layer dropping, or another one."""
    patches.only_for("deepspeed", ("0.19.6",), "timm_layer_dropping")


def keep_probability(layer: int, layers: int, theta: float) -> float:
    """Return the probability that block `layer` of `layers` is kept; algorithm 1 of the paper.

    Blocks count from 0. The first is never dropped, later ones more and more often.
    """
    return 1 - layer / layers * (1 - theta)


def decisions(layers: int, theta: float, seed: int, step: int, part: int) -> list[bool]:
    """Choose which blocks are kept in one forward pass.

    The choice depends only on the run's seed, the step and the micro-batch `part`. So all ranks
    drop the same blocks, and no rank waits for another. A run that resumes from a checkpoint drops
    what it would have dropped anyway.
    """
    import random

    draw = random.Random(f"{seed} {step} {part}")
    return [draw.random() < keep_probability(i, layers, theta) for i in range(layers)]


class LayerDropping:
    """The layer dropping of a timm vision transformer: it drops the blocks that `draw` chose for
    the next forward pass.

    A block adds the outputs of two branches to its input. In a block that is kept, these outputs
    are divided by the probability of keeping it (algorithm 1 of the paper). `kept` has one entry
    per block: the choice of the last `draw`. Raises ValueError if the model has no such blocks.
    """

    def __init__(self, model: Any, seed: int) -> None:
        blocks = list(getattr(model, "blocks", []))
        if not blocks or not all(
            hasattr(b, "drop_path1") and hasattr(b, "drop_path2") for b in blocks
        ):
            raise ValueError(
                "progressive_layer_dropping needs a vision transformer whose blocks have two"
                " branches"
            )
        self.seed = seed
        self.kept = [True] * len(blocks)
        self.scales = [1.0] * len(blocks)
        for i, block in enumerate(blocks):
            self._wrap(i, block)

    def draw(self, theta: float, step: int, part: int) -> None:
        """Choose the blocks for micro-batch `part` of a step, at DeepSpeed's `theta`."""
        layers = len(self.kept)
        self.kept = decisions(layers, theta, self.seed, step, part)
        self.scales = [1 / keep_probability(i, layers, theta) for i in range(layers)]

    def keep_all(self) -> None:
        """Drop nothing, as validation needs it."""
        self.kept, self.scales = [True] * len(self.kept), [1.0] * len(self.kept)

    def _wrap(self, i: int, block: Any) -> None:
        """Let a dropped block return its input, and scale the output of the two branches of a kept
        one.
        """
        whole = block.forward

        def forward(x: Any, *args: Any, **kwargs: Any) -> Any:
            return whole(x, *args, **kwargs) if self.kept[i] else x

        def scaled(_module: Any, _inputs: Any, branch: Any) -> Any:
            return branch if self.scales[i] == 1.0 else branch * self.scales[i]

        block.forward = forward
        for name in ("drop_path1", "drop_path2"):
            getattr(block, name).register_forward_hook(scaled)
