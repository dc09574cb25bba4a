"""The GPT of examples/language-model in the Hugging Face Trainer. ddlbench reads the state that the
Trainer saves.

Tried with transformers 5.23.0, accelerate 1.15.0 and torch 2.13.0: pip install transformers
accelerate. config/programs/hugging-face.yaml starts it.
"""

import argparse
import sys
from pathlib import Path

import torch
import transformers

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "language-model"))
from markov import Markov
from train import Network, batches


class Model(torch.nn.Module):
    """The network, with the words that the Trainer uses."""

    def __init__(self, args):
        super().__init__()
        self.network = Network(args)

    def forward(self, input_ids, labels):
        return {"loss": self.network(input_ids, labels)}


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
    for name, value in (sizes | {"batch_per_worker": 8}).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    parser.add_argument("--out", type=Path, default=Path())
    fixed = argparse.Namespace(model="gpt", lr=3e-3, precision="fp32")
    args = parser.parse_args(namespace=fixed)
    transformers.set_seed(args.seed)
    told = transformers.TrainingArguments(
        use_cpu=not torch.cuda.is_available(),  # else ranks on CPUs train each for itself
        output_dir=args.out,
        seed=args.seed,
        max_steps=args.steps,
        learning_rate=args.lr,
        per_device_train_batch_size=args.batch_per_worker,
        lr_scheduler_type="constant",
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    each = [
        tokens
        for rank in range(told.world_size)
        for tokens, _ in batches(Markov(args.vocabulary), args, rank)
    ]
    data = [{"input_ids": one, "labels": one} for one in torch.cat(each)]
    trainer = transformers.Trainer(Model(args), told, train_dataset=data)
    trainer.train()
    trainer.save_state()  # trainer_state.json
