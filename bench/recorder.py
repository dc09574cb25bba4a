#!/usr/bin/env python
"""What the recorder costs: a bare loop beside the same loop with the recorder in it, in turns, in
one process.

    python bench/recorder.py [--steps 2000] [--rounds 20] [--device cuda]

It prints the cost per step [us], from the best round of each loop, and the median ratio of both
loops' times; exit code 1 if a step costs 20 us or more. With `--device cuda` each step is some
matrix products on the GPU, whose losses the recorder reads when they are there; the bare loop ends
with the same wait for the GPU.

Where Lightning or transformers are installed beside this Python, the same is told of what they cost
to log each step: their Trainer with a model of one weight, with its own logging and without, in
turns.
"""

import argparse
import contextlib
import importlib.metadata
import importlib.util
import io
import logging
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "recorder"))
LIMIT_US = 20.0


def work_of(device: str) -> tuple[Callable[[], Any], Callable[[], None]]:
    """One step's work, which gives its loss, and what waits for all of it."""
    if device == "cpu":
        return lambda: float(sum(range(5000))), lambda: None
    import torch

    x = torch.randn(2048, 2048, device=device)

    def multiply() -> torch.Tensor:
        return (x @ x @ x).sum()

    return multiply, torch.cuda.synchronize


def of_lightning(folder: str, steps: int) -> Callable[[bool], float]:
    """Lightning's Trainer; `self.log` and CSVLogger tell each step's loss."""
    import lightning
    import torch
    from lightning.pytorch.loggers import CSVLogger

    class Clock(lightning.Callback):
        def on_train_start(self, *_: Any) -> None:
            self.began = time.thread_time()

        def on_train_end(self, *_: Any) -> None:
            self.took = time.thread_time() - self.began

    class Module(lightning.LightningModule):
        def __init__(self, logged: bool) -> None:
            super().__init__()
            self.weight, self.logged = torch.nn.Parameter(torch.ones(1)), logged

        def training_step(self, batch: torch.Tensor, number: int) -> torch.Tensor:
            loss = (self.weight * batch).sum()
            if self.logged:
                self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def took(logged: bool) -> float:
        clock = Clock()
        off = dict.fromkeys(
            ("enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
        )
        logger = CSVLogger(folder) if logged else False
        about = {
            "accelerator": "cpu",
            "max_epochs": 1,
            "log_every_n_steps": 1,
            "logger": logger,
            "callbacks": [clock],
        }
        lightning.Trainer(**about, **off).fit(
            Module(logged), torch.utils.data.DataLoader(torch.ones(steps, 1))
        )
        return clock.took

    return took


def of_transformers(folder: str, steps: int) -> Callable[[bool], float]:
    """The Hugging Face Trainer; it prints each step's loss, and keeps it for its state."""
    import torch
    import transformers

    class Clock(transformers.TrainerCallback):
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            self.began = time.thread_time()

        def on_train_end(self, *_: Any, **__: Any) -> None:
            self.took = time.thread_time() - self.began

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": (self.weight * x).sum()}

    data = [{"x": torch.ones(1), "labels": torch.ones(1)}] * steps

    def took(logged: bool) -> float:
        clock, how = (
            Clock(),
            (
                {"logging_strategy": "steps", "logging_steps": 1}
                if logged
                else {"logging_strategy": "no"}
            ),
        )
        off = {"save_strategy": "no", "report_to": "none", "disable_tqdm": True, "use_cpu": True}
        told = transformers.TrainingArguments(
            folder, per_device_train_batch_size=1, max_steps=steps, **off, **how
        )
        transformers.Trainer(Model(), told, train_dataset=data, callbacks=[clock]).train()
        return clock.took

    return took


def tell_trainers(steps: int, rounds: int) -> None:
    """What the logging of Trainers that are installed costs per step."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    for name, made in {"lightning": of_lightning, "transformers": of_transformers}.items():
        if importlib.util.find_spec(name) is None:
            print(f"{name}: not installed beside this Python")
            continue
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            took = made(folder, steps)
            took(True)
            pairs = [(took(False), took(True)) for _ in range(rounds)]
        bare, logged = (1e6 * min(times) / steps for times in zip(*pairs, strict=True))
        version = importlib.metadata.version(name)
        print(
            f"{name} {version}: its logging {logged - bare:.0f} us per step, the step without it"
            f" {bare:.0f} us"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--device", default="cpu")
    a = parser.parse_args()
    work, wait = work_of(a.device)
    # On a CPU, of which others may take their share, what counts is this thread's own time.
    clock = time.thread_time if a.device == "cpu" else time.perf_counter
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DDLBENCH_RECORDER"] = folder
        from ddlbench_recorder import Recorder

        rec = Recorder()

        def took(recorded: bool) -> float:
            wait()
            began = clock()
            for _ in rec.batches(range(a.steps)) if recorded else range(a.steps):
                loss = work()
                if recorded:
                    rec.step(loss, samples=32)
            wait()
            return clock() - began

        took(True)
        pairs = [(took(False), took(True)) for _ in range(a.rounds)]
        rec._close()
        rows = sum(path.stat().st_size for path in Path(folder).glob("*.steps"))
    bare, mine = (min(times) for times in zip(*pairs, strict=True))
    ratio = statistics.median(mine / bare for bare, mine in pairs)
    print(
        f"{1e6 * (mine - bare) / a.steps:.1f} us per step in the best of {a.rounds} rounds; median"
        f" ratio {ratio:.4f}"
    )
    print(f"{rows / ((a.rounds + 1) * a.steps):.0f} bytes per step", flush=True)
    if a.device == "cpu":
        tell_trainers(max(a.steps // 4, 10), max(a.rounds // 4, 1))
    sys.exit(0 if 1e6 * (mine - bare) / a.steps < LIMIT_US else 1)


if __name__ == "__main__":
    main()
