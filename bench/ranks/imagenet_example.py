"""A rival of `trainers.py`: what PyTorch's ImageNet example does (pytorch/examples,
imagenet/main.py), written anew.

torchvision's ImageFolder and transforms, DistributedSampler, a DataLoader whose processes start
anew each epoch, DDP with its defaults, and of every step the loss and the accuracies (top 1 and 5)
metered, every tenth printed. The model is timm's, as on the other sides. Left out, in its favour:
validation and checkpoints, which lie between epochs.

The only argument is a JSON object of settings; `trainers.py` starts it by torchrun.
"""

import json
import sys
import time
from types import SimpleNamespace

import torch
import torch.distributed as dist
from ddlbench.patches import torchvision_operators
from pictures import folder
from stopwatch import Stopwatch, rank
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

torchvision_operators.apply()
import timm  # noqa: E402

PRINT_FREQUENCY = 10


class Meter:
    """The last value and the mean, weighed by n."""

    def __init__(self, name: str) -> None:
        self.name, self.value, self.sum, self.count = name, 0.0, 0.0, 0

    def update(self, value, n: int = 1) -> None:
        self.value, self.sum, self.count = value, self.sum + value * n, self.count + n

    @property
    def mean(self):
        return self.sum / self.count

    def __str__(self) -> str:
        return f"{self.name} {float(self.value):.4g} ({float(self.mean):.4g})"


@torch.no_grad()
def accuracies(
    scores: torch.Tensor, labels: torch.Tensor, ranks: tuple[int, ...]
) -> list[torch.Tensor]:
    """Percent of labels among the first so many scores."""
    found = scores.topk(max(ranks), 1, True, True).indices.t()
    right = found.eq(labels.view(1, -1).expand_as(found))
    return [right[:k].reshape(-1).float().sum(0) * (100 / len(labels)) for k in ranks]


def train(loader, model, loss_fn, optimizer, epoch: int) -> float:
    """The mean loss of the epoch on this rank."""
    meters = batch_time, data_time, losses, top1, top5 = [
        Meter(n) for n in ("time", "data", "loss", "acc@1", "acc@5")
    ]
    model.train()
    end = time.time()
    for number, (images, labels) in enumerate(loader):
        data_time.update(time.time() - end)
        scores = model(images)
        loss = loss_fn(scores, labels)
        first, five = accuracies(scores, labels, (1, 5))
        losses.update(loss.item(), len(images))
        top1.update(first, len(images))
        top5.update(five, len(images))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        batch_time.update(time.time() - end)
        end = time.time()
        if number % PRINT_FREQUENCY == 0:
            print(f"epoch {epoch} [{number + 1}/{len(loader)}]", *meters, sep="\t")
    return losses.mean


def main() -> None:
    s = SimpleNamespace(**json.loads(sys.argv[1]))
    dist.init_process_group("gloo")
    torch.manual_seed(s.seed)
    model = DistributedDataParallel(timm.create_model(s.model, num_classes=s.classes))
    torch.manual_seed(s.seed * 100_003 + rank())
    loss_fn = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(
        model.parameters(), s.lr, momentum=s.momentum, weight_decay=s.weight_decay
    )
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30, gamma=0.1)
    dataset = folder(s)
    sampler = DistributedSampler(dataset)
    # The example pins memory, which does nothing without a GPU but warn.
    loader = DataLoader(
        dataset, batch_size=s.batch_per_worker, num_workers=s.threads, sampler=sampler
    )
    stopwatch = Stopwatch()
    for epoch in range(s.epochs):
        sampler.set_epoch(epoch)
        with stopwatch.epoch():
            loss = train(loader, model, loss_fn, optimizer, epoch)
        scheduler.step()
    stopwatch.write(s.out, rank(), len(sampler), loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
