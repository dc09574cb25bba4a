"""The rival of `overhead.py`: the training loop that one would write by hand, in one file, without
ddlbench.

One rank of it; its launcher starts as many as there are workers. The only argument is a JSON object
of settings. Each rank leaves its times and the loss of its last step in the folder `out`. It
validates nothing, logs no step and waits for nothing that training does not need.
"""

import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from stopwatch import Stopwatch, rank
from torch import nn
from torch.utils.data import DataLoader, Dataset

MEAN = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1) * 255
STD = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1) * 255


class Pictures(Dataset):
    """Class folders of pictures."""

    def __init__(self, folder: Path, size: int) -> None:
        names = sorted(p.name for p in folder.iterdir())
        self.files = [(p, i) for i, n in enumerate(names) for p in sorted((folder / n).iterdir())]
        self.size = (size, size)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        path, label = self.files[index]
        with Image.open(path) as image:
            image = image.convert("RGB")
        return (
            image if image.size == self.size else image.resize(self.size, Image.Resampling.BILINEAR)
        ), label


class Batches:
    """This rank's part of each global batch; the order is ddlbench's, so that both train on the
    same pictures.
    """

    def __init__(self, images: int, s: SimpleNamespace, rank: int) -> None:
        self.epoch, self.s, self.rank = 0, s, rank
        # Before the clock starts: how an order is drawn is no part of what is compared.
        draw = (np.random.default_rng([s.seed, epoch]) for epoch in range(s.epochs))
        self.orders = [generator.permutation(images).tolist() for generator in draw]

    def __iter__(self):
        order, whole, workers = self.orders[self.epoch], self.s.global_batch, self.s.workers
        for start in range(0, len(order), whole):
            n = min(
                whole, len(order) - start
            )  # the last one is smaller, and cut into equal parts as well
            yield order[start + n * self.rank // workers : start + n * (self.rank + 1) // workers]


def collate(items):
    """uint8 pictures: four times less to hand over between processes than floats."""
    pixels = torch.from_numpy(np.stack([np.asarray(image) for image, _ in items]))
    return pixels.permute(0, 3, 1, 2).contiguous(), torch.tensor([label for _, label in items])


def build_model(s: SimpleNamespace) -> nn.Module:
    """LeNet-5 or a model of timm's."""
    torch.manual_seed(s.seed)
    if s.model != "lenet":
        if (
            torch.version.cuda is None
        ):  # a CUDA-built torchvision, which timm imports, needs these two to be named
            for operator in ("nms", "qnms"):
                signature = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
                torch.library.define(f"torchvision::{operator}", signature)
        import timm

        return timm.create_model(s.model, num_classes=s.classes)
    side = (s.image_size // 2 - 4) // 2
    return nn.Sequential(
        *(nn.Conv2d(3, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(
            nn.Linear(16 * side**2, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, s.classes),
        ),
    )


def learning_rate(s: SimpleNamespace, epoch: float) -> float:
    """Linear scaling, gradual warm-up, then cosine by whole epochs."""
    peak = s.base_lr * s.global_batch / s.base_batch
    t = (
        math.floor(max(epoch, s.warmup_epochs)) if s.epochs > s.warmup_epochs else 0
    )  # else the run is all warm-up
    scheduled = s.lr_min + (peak - s.lr_min) / 2 * (1 + math.cos(math.pi * t / s.epochs))
    if epoch < s.warmup_epochs:
        return s.base_lr + (scheduled - s.base_lr) * epoch / s.warmup_epochs
    return scheduled


def blocks(model: nn.Module):
    """What FSDP gathers at a time: the model's children, of sequences their members."""
    for child in model.children():
        if isinstance(child, nn.Sequential):
            yield from blocks(child)
        elif any(True for _ in child.parameters()):
            yield child


def main() -> None:
    s = SimpleNamespace(**json.loads(sys.argv[1]))
    torch.set_num_threads(1)
    pictures = Pictures(Path(s.data) / "train", s.image_size)
    batches = Batches(len(pictures), s, rank())
    loader = DataLoader(
        pictures,
        batch_sampler=batches,
        num_workers=s.loader_threads,
        collate_fn=collate,
        persistent_workers=True,
    )
    model = build_model(s)
    if s.framework == "fsdp":  # before the optimizer, which is to see the shards
        import torch.distributed as dist
        from torch.distributed.fsdp import fully_shard

        dist.init_process_group("gloo")
        for block in blocks(model):
            fully_shard(block)
        engine = fully_shard(model)
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=s.base_lr,
        momentum=s.momentum,
        nesterov=s.nesterov,
        weight_decay=s.weight_decay,
    )
    if s.framework == "ddp":
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel

        dist.init_process_group("gloo")
        engine = DistributedDataParallel(model, broadcast_buffers=False)
    elif s.framework == "horovod":
        import horovod.torch as hvd
        from ddlbench.train.frameworks import horovod

        horovod.meet()
        hvd.init()
        engine = model
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    elif s.framework == "deepspeed":
        import deepspeed
        import torch.distributed as dist

        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = (
            False  # it would be compiled for two minutes
        )
        deepspeed.init_distributed("gloo", verbose=False)
        config = {
            "train_micro_batch_size_per_gpu": s.batch_per_worker,
            "gradient_clipping": 0.0,
            "steps_per_print": 10**9,
        }
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)

    engine.train()
    steps = math.ceil(len(pictures) / s.global_batch)
    stopwatch = Stopwatch()
    for epoch in range(s.epochs):
        batches.epoch = epoch
        with stopwatch.epoch():
            for step, (pixels, labels) in enumerate(loader):
                for group in optimizer.param_groups:
                    group["lr"] = learning_rate(s, epoch + step / steps)
                if s.framework != "deepspeed":
                    optimizer.zero_grad()
                output = engine(pixels.float().sub_(MEAN).div_(STD))
                loss = F.cross_entropy(output, labels, label_smoothing=s.label_smoothing)
                if s.framework == "deepspeed":
                    engine.backward(loss)
                    engine.step()
                else:
                    loss.backward()
                    optimizer.step()
    stopwatch.write(s.out, rank(), len(pictures) // s.workers, loss.item())
    (hvd.shutdown if s.framework == "horovod" else dist.destroy_process_group)()


if __name__ == "__main__":
    main()
