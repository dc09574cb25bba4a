"""The control: a run as a bare PyTorch loop in one process, without framework, loader or launcher.

It shares the initial model, the order of samples and the learning rate with ddlbench, and nothing
else.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from ddlbench.core.schedule import learning_rate
from ddlbench.core.spec import RunSpec
from ddlbench.train import models
from ddlbench.train.loaders._normalisation import MEAN, STD
from ddlbench.train.loaders._sampling import shuffled
from PIL import Image


@dataclass(frozen=True)
class Control:
    """A loss and a gradient norm a step, correct validation images an epoch, the final
    parameters.
    """

    losses: list[float]
    gradient_norms: list[float]
    correct: list[int]
    state: dict[str, torch.Tensor]


def pictures(folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """All pictures of a split's class folders, normalised, and their labels."""
    paths = [(p, i) for i, c in enumerate(sorted(folder.iterdir())) for p in sorted(c.iterdir())]
    pixels = np.stack([np.asarray(Image.open(p).convert("RGB")) for p, _ in paths])
    x = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255
    x = (x - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    return x, torch.tensor([i for _, i in paths])


def train(spec: RunSpec, raw: Path, rec: Any = None) -> Control:
    """Train on whole global batches of the raw form; `rec` is a recorder of the steps."""
    torch.set_num_threads(1)
    (x, y), (x_val, y_val) = pictures(raw / "train"), pictures(raw / "val")
    torch.manual_seed(spec.seed)
    model = models.build(spec.model, 10, spec.recipe.image_size, spec.recipe.zero_init_last)
    r = spec.recipe
    optimizer = torch.optim.SGD(
        model.parameters(), 1.0, momentum=r.momentum, weight_decay=r.weight_decay
    )
    losses, norms, correct = [], [], []
    for epoch in range(spec.epochs):
        batches = torch.tensor(shuffled(len(y), spec.seed, epoch)).split(spec.global_batch)
        for step, batch in enumerate(rec.batches(batches) if rec else batches):
            optimizer.param_groups[0]["lr"] = learning_rate(spec, epoch + step / len(batches))
            loss = F.cross_entropy(model(x[batch]), y[batch], label_smoothing=r.label_smoothing)
            optimizer.zero_grad()
            loss.backward()
            norms.append(float(torch.cat([p.grad.flatten() for p in model.parameters()]).norm()))
            optimizer.step()
            losses.append(float(loss.detach()))
            if rec:
                rec.step(loss, len(batch), optimizer.param_groups[0]["lr"])
        with torch.no_grad():
            correct.append(int((model(x_val).argmax(1) == y_val).sum()))
    return Control(losses, norms, correct, model.state_dict())
