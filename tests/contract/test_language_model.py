"""examples/language-model: its source has the entropy that it says, and a model learns it, no more and no less."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import ROOT

PROGRAM = ROOT / "examples/language-model"


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A source of 64 tokens."""
    monkeypatch.syspath_prepend(PROGRAM)
    from markov import Markov

    return Markov(64)


def test_each_token_leaves_as_much_open_as_is_said(source: Any) -> None:
    """The floor of a GPT is the entropy of what follows a token, by its own counts in many tokens drawn."""
    tokens = source.draw(400, 500, torch.Generator().manual_seed(1))
    counts = torch.zeros(64, 64, dtype=torch.float64)
    counts.index_put_((tokens[:, :-1].flatten(), tokens[:, 1:].flatten()), torch.tensor(1.0).double(), accumulate=True)
    likely = counts / counts.sum(dim=1, keepdim=True)
    counted = float((counts.sum(dim=1) * torch.special.entr(likely).sum(dim=1)).sum() / counts.sum())
    assert source.floor("gpt") == pytest.approx(counted, abs=0.01)
    assert 1.15 < source.floor("gpt") <= 1.75 * math.log(2)  # less where two successors are the same token
    assert 0 < source.floor("bert") < source.floor("gpt")


@pytest.mark.parametrize("framework", ["ddp", "fsdp", "deepspeed"])
def test_a_gpt_comes_near_the_floor_and_not_below(source: Any, tmp_path: Path, framework: str) -> None:
    train = [str(PROGRAM / "train.py"), "--framework", framework, "--steps", "150", "--out", str(tmp_path)]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1", *train]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads((tmp_path / "result.json").read_text())
    assert told["floor"] == source.floor("gpt")
    assert told["floor"] - 0.05 < told["loss"] < told["floor"] + 0.6  # untrained: ln 64 = 4.16
