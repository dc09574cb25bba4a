"""A rival of `trainers.py`: the Hugging Face Trainer, on torchvision's pictures, DDP over Gloo.

Left out, in its favour: progress bars, checkpoints, clipping, the search for unused parameters. The
only argument is a JSON object of settings; `trainers.py` starts it by torchrun, where transformers
and accelerate are installed.
"""

import json
import sys
from contextlib import ExitStack
from types import SimpleNamespace

import torch
from ddlbench.patches import torchvision_operators
from pictures import folder
from stopwatch import Stopwatch, rank
from torch import nn

torchvision_operators.apply()
import timm  # noqa: E402
from transformers import Trainer, TrainerCallback, TrainingArguments  # noqa: E402


class Classifier(nn.Module):
    """timm's model, which gives its loss as the Trainer wants it."""

    def __init__(self, s: SimpleNamespace) -> None:
        super().__init__()
        self.loss_fn, self.losses = nn.CrossEntropyLoss(), []
        self.model = timm.create_model(s.model, num_classes=s.classes)

    def forward(self, images, labels):
        scores = self.model(images)
        loss = self.loss_fn(scores, labels)
        self.losses.append(loss.detach())
        return {"loss": loss, "logits": scores}


class Timed(TrainerCallback):
    """The stopwatch around each epoch."""

    def __init__(self, module: Classifier) -> None:
        self.stopwatch, self.epoch, self.module = Stopwatch(), ExitStack(), module

    def on_epoch_begin(self, args, state, control, **_) -> None:
        self.module.losses.clear()
        self.epoch.enter_context(self.stopwatch.epoch())

    def on_epoch_end(self, args, state, control, **_) -> None:
        self.epoch.close()


def collate(items):
    return {
        "images": torch.stack([image for image, _ in items]),
        "labels": torch.tensor([label for _, label in items]),
    }


def main() -> None:
    s = SimpleNamespace(**json.loads(sys.argv[1]))
    torch.manual_seed(s.seed)
    module = Classifier(s)
    optimizer = torch.optim.SGD(
        module.parameters(), s.lr, momentum=s.momentum, weight_decay=s.weight_decay
    )
    constant = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    settings = TrainingArguments(
        s.out, per_device_train_batch_size=s.batch_per_worker, num_train_epochs=s.epochs, use_cpu=True,
        ddp_backend="gloo", dataloader_num_workers=s.threads, save_strategy="no", report_to="none", max_grad_norm=0.0,
        disable_tqdm=True, remove_unused_columns=False, ddp_find_unused_parameters=False, seed=s.seed,
    )  # fmt: skip
    timed, data = Timed(module), folder(s)
    Trainer(
        module,
        settings,
        data_collator=collate,
        train_dataset=data,
        optimizers=(optimizer, constant),
        callbacks=[timed],
    ).train()
    loss = torch.stack(module.losses).mean().item()
    timed.stopwatch.write(s.out, rank(), len(data) // s.workers, loss)


if __name__ == "__main__":
    main()
