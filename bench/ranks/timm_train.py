"""A rival of `trainers.py`: what timm's `train.py` does (pytorch-image-models 1.0, its defaults),
written anew.

timm's data set, loader with prefetcher, optimizer, scheduler and meters; DDP with its defaults. Of
every step the loss is read and metered, every 50th (`--log-interval`) is averaged over ranks and
logged. Left out, because the others do not have it: colour jitter, bicubic resizing, batch-norm's
and biases' freedom from weight decay, label smoothing. Left out as well, in timm's favour:
validation, checkpoints and summaries, which lie between epochs.

The only argument is a JSON object of settings; `trainers.py` starts it by torchrun.
"""

import json
import logging
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
from ddlbench.patches import torchvision_operators
from stopwatch import Stopwatch, rank
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torchvision_operators.apply()
import timm  # noqa: E402
from timm import utils  # noqa: E402
from timm.data import (  # noqa: E402
    IMAGENET_DEFAULT_MEAN,
    IMAGENET_DEFAULT_STD,
    create_dataset,
    create_loader,
)
from timm.optim import create_optimizer_v2  # noqa: E402
from timm.scheduler import create_scheduler_v2  # noqa: E402

LOG_INTERVAL = 50
logger = logging.getLogger("train")


def train_one_epoch(epoch: int, model, loader, optimizer, loss_fn, scheduler, world: int) -> float:
    """The mean loss of the epoch over ranks."""
    device = torch.device("cpu")
    update_time, data_time, losses = (
        utils.AverageMeter(),
        utils.AverageMeter(),
        utils.AverageMeter(),
    )
    model.train()
    updates, last = epoch * len(loader), len(loader) - 1
    asked = updated = time.time()
    optimizer.zero_grad()
    for number, (images, labels) in enumerate(loader):
        data_time.update(time.time() - asked)
        loss = loss_fn(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.update(loss.item(), images.shape[0])
        updates += 1
        optimizer.zero_grad()
        now = time.time()
        update_time.update(now - updated)
        updated = now
        if number % LOG_INTERVAL == 0 or number == last:
            rates = [group["lr"] for group in optimizer.param_groups]
            mean = utils.reduce_tensor(torch.tensor([losses.avg], device=device), world).item()
            value = utils.reduce_tensor(torch.tensor([losses.val], device=device), world).item()
            if rank() == 0:
                speed = images.shape[0] * world
                logger.info(
                    f"epoch {epoch} step {number}/{len(loader)}: loss {value:.4g} ({mean:.4g}),"
                    f" {update_time.val:.3f} s, {speed / update_time.val:.2f}/s"
                    f" ({update_time.avg:.3f} s, {speed / update_time.avg:.2f}/s), lr"
                    f" {sum(rates) / len(rates):.3e}, data {data_time.val:.3f}"
                    f" ({data_time.avg:.3f})"
                )
        scheduler.step_update(num_updates=updates, metric=losses.avg)
        asked = time.time()
    return utils.reduce_tensor(torch.tensor([losses.avg], device=device), world).item()


def main() -> None:
    s = SimpleNamespace(**json.loads(sys.argv[1]))
    utils.setup_default_logging()
    dist.init_process_group("gloo")
    torch.manual_seed(s.seed)
    model = timm.create_model(s.model, num_classes=s.classes)
    optimizer = create_optimizer_v2(
        model,
        opt="momentum",
        lr=s.lr,
        weight_decay=s.weight_decay,
        momentum=s.momentum,
        filter_bias_and_bn=False,
    )
    model = DistributedDataParallel(model)
    utils.random_seed(s.seed, rank())
    dataset = create_dataset(
        "", root=str(Path(s.data) / "train"), is_training=True, batch_size=s.batch_per_worker
    )
    loader = create_loader(
        dataset,
        input_size=(3, s.image_size, s.image_size),
        batch_size=s.batch_per_worker,
        is_training=True,
        scale=(0.08, 1.0),
        ratio=(3 / 4, 4 / 3),
        hflip=0.5,
        color_jitter=None,
        interpolation="bilinear",
        mean=IMAGENET_DEFAULT_MEAN,
        std=IMAGENET_DEFAULT_STD,
        num_workers=s.threads,
        distributed=True,
        use_prefetcher=True,
        pin_memory=False,
        device=torch.device("cpu"),
        worker_seeding="all",
    )
    scheduler, _ = create_scheduler_v2(
        optimizer,
        sched="step",
        num_epochs=s.epochs,
        decay_epochs=30,
        decay_rate=0.1,
        updates_per_epoch=len(loader),
    )
    loss_fn = nn.CrossEntropyLoss()
    stopwatch = Stopwatch()
    for epoch in range(s.epochs):
        loader.sampler.set_epoch(epoch)
        with stopwatch.epoch():
            loss = train_one_epoch(epoch, model, loader, optimizer, loss_fn, scheduler, s.workers)
        utils.distribute_bn(model, s.workers, reduce=True)
        scheduler.step(epoch + 1, loss)
    stopwatch.write(s.out, rank(), len(loader) * s.batch_per_worker, loss)
    dist.destroy_process_group()
    os._exit(0)  # once, the prefetcher's loader never ended


if __name__ == "__main__":
    main()
