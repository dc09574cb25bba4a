"""The GPT of examples/language-model in Lightning's Trainer. What ddlbench needs is the callback
`Record`.

Tried with lightning 2.6.6 and torch 2.13.0: pip install lightning. config/programs/lightning.yaml
starts it.
"""

import argparse
import os
import sys
from pathlib import Path

import lightning
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "language-model"))
sys.path.insert(
    0, str(Path(__file__).resolve().parents[2] / "recorder")
)  # or: pip install ./recorder
from ddlbench_recorder import Recorder
from markov import Markov
from train import Network, batches


class Record(lightning.Callback):
    """Tells ddlbench of each step."""

    def on_train_start(self, trainer, module):
        self.recorder = Recorder()

    def on_train_batch_end(self, trainer, module, outputs, batch, number):
        self.recorder.step(outputs["loss"], samples=len(batch[0]))


class Module(lightning.LightningModule):
    """The model and its optimizer, as Lightning wants them."""

    def __init__(self, args):
        super().__init__()
        self.network, self.lr = Network(args), args.lr

    def training_step(self, batch, number):
        return self.network(*batch)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr, weight_decay=0.0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    sizes = {
        "layers": 2,
        "hidden": 64,
        "heads": 2,
        "sequence": 32,
        "vocabulary": 64,
        "steps": 30,
        "seed": 1,
    }
    for name, value in (sizes | {"batch_per_worker": 8, "devices": 1, "nodes": 1}).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    fixed = argparse.Namespace(model="gpt", lr=3e-3, precision="fp32")
    args = parser.parse_args(namespace=fixed)
    lightning.seed_everything(args.seed, verbose=False)
    trainer = lightning.Trainer(
        strategy="ddp" if args.devices * args.nodes > 1 else "auto",
        devices=args.devices,
        num_nodes=args.nodes,
        max_epochs=1,
        gradient_clip_val=1.0,
        **dict.fromkeys(
            ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
        ),
        use_distributed_sampler=False,  # each rank draws its own tokens
        callbacks=[Record()],
    )
    drawn = list(batches(Markov(args.vocabulary), args, int(os.environ.get("RANK", 0))))
    trainer.fit(Module(args), torch.utils.data.DataLoader(drawn, batch_size=None))
