"""A rival of `trainers.py`: Lightning's Trainer with its defaults, on torchvision's pictures, DDP
over Gloo.

Left out, in its favour: the progress bar, the summary of the model, checkpoints. The only argument
is a JSON object of settings; `trainers.py` starts it by torchrun, where Lightning is installed.
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
from torch.utils.data import DataLoader

torchvision_operators.apply()  # both import torchvision
import lightning  # noqa: E402
import timm  # noqa: E402


class Classifier(lightning.LightningModule):
    """timm's model with its loss, logged as the documentation does."""

    def __init__(self, s: SimpleNamespace) -> None:
        super().__init__()
        self.s, self.loss_fn, self.losses = s, nn.CrossEntropyLoss(), []
        self.model = timm.create_model(s.model, num_classes=s.classes)

    def training_step(self, batch, _):
        images, labels = batch
        loss = self.loss_fn(self.model(images), labels)
        self.log("train_loss", loss)
        self.losses.append(loss.detach())
        return loss

    def configure_optimizers(self):
        s = self.s
        return torch.optim.SGD(
            self.parameters(), s.lr, momentum=s.momentum, weight_decay=s.weight_decay
        )


class Timed(lightning.Callback):
    """The stopwatch around each epoch."""

    def __init__(self) -> None:
        self.stopwatch, self.epoch = Stopwatch(), ExitStack()

    def on_train_epoch_start(self, trainer, module) -> None:
        module.losses.clear()
        self.epoch.enter_context(self.stopwatch.epoch())

    def on_train_epoch_end(self, trainer, module) -> None:
        self.epoch.close()


def main() -> None:
    s = SimpleNamespace(**json.loads(sys.argv[1]))
    torch.manual_seed(s.seed)
    module, timed = Classifier(s), Timed()
    torch.manual_seed(s.seed * 100_003 + rank())
    data = folder(s)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=s.workers, strategy="ddp", max_epochs=s.epochs, default_root_dir=s.out,
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False, callbacks=[timed],
    )  # fmt: skip
    trainer.fit(
        module, DataLoader(data, batch_size=s.batch_per_worker, num_workers=s.threads, shuffle=True)
    )
    loss = torch.stack(module.losses).mean().item()
    timed.stopwatch.write(s.out, rank(), len(data) // s.workers, loss)


if __name__ == "__main__":
    main()
