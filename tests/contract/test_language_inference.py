"""examples/language-inference: each way to serve answers as the plain model, and DeepSpeed's
replace what they should.

What really serves needs transformers: beside this Python, or in the environment that
DDLBENCH_PROGRAMS_ENVIRONMENT names.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from ddlbench.plan.runs import make_plan
from ddlbench.settings.study import load_study

from tests.builders.machines import JUWELS, LAPTOP
from tests.conftest import ROOT
from tests.workflow.test_others_programs import NAMED

PROGRAM = ROOT / "examples/language-inference"


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program, which is imported without its packages."""
    monkeypatch.syspath_prepend(PROGRAM)
    monkeypatch.setitem(sys.modules, "torchvision", sys.modules.get("torchvision"))
    import serve

    return serve


@pytest.mark.parametrize(
    ("study", "machine"), [("language-inference-small", LAPTOP), ("language-inference", JUWELS)]
)
def test_no_shipped_run_asks_for_what_is_refused(study: str, machine: Any, serve: Any) -> None:
    """Each run's words as its ranks get them."""
    given = argparse.ArgumentParser()
    for name in ("--way", "--size", "--batch"):
        given.add_argument(name)
    ways = set()
    for job in make_plan(load_study(study), machine).runs.values():
        spec = job.spec
        values = {"global_batch": spec.global_batch, "seed": spec.seed, "folder": "out"}
        words = spec.program.argv(values)
        args, rest = given.parse_known_args(words[2:])
        ways.add(args.way)
        assert serve.refuses(args.way, args.size, spec.workers, spec.device) is None, shlex.join(
            words
        )
        assert (args.way, int(args.batch)) == (spec.framework, spec.global_batch)
        assert ("--precision" in rest) == (spec.device == "cuda")
    on_gpus = {*serve.KERNELS} if study == "language-inference" else {"own-slices"}
    assert ways == {"plain", "compiled", "int8", "deepspeed-engine", "deepspeed-autotp"} | on_gpus


@pytest.mark.parametrize(
    ("way", "size", "ranks", "device", "says"),
    [
        ("deepspeed-autotp", "gpt2-small", 2, "cpu", "allowed: own-slices"),
        ("own-slices", "bert-small", 2, "cpu", "allowed: deepspeed-autotp"),
        ("deepspeed-kernels", "bert-small", 1, "cpu", "are for GPUs"),
        ("deepspeed-kernels", "gpt2-1.5e9", 2, "cuda", "do not divide the 25 heads"),
    ],
)
def test_what_cannot_be_served_is_refused(
    way: str, size: str, ranks: int, device: str, says: str, serve: Any
) -> None:
    assert says in serve.refuses(way, size, ranks, device)


def test_deepspeed_is_told_what_to_replace(serve: Any) -> None:
    half, full = torch.float16, torch.float32
    assert serve.deepspeed_settings("deepspeed-engine", 2, full) == {
        "dtype": full,
        "replace_with_kernel_inject": False,
    }
    tensor_parallel = {"tensor_parallel": {"tp_size": 2}}
    sliced = {"dtype": full, "replace_with_kernel_inject": False} | tensor_parallel
    assert serve.deepspeed_settings("deepspeed-autotp", 2, full) == sliced
    kernels = {"dtype": half, "replace_with_kernel_inject": True} | tensor_parallel
    assert serve.deepspeed_settings("deepspeed-kernels", 2, half) == kernels
    assert serve.deepspeed_settings("deepspeed-kernels-int8", 2, half) == kernels | {
        "dtype": torch.int8
    }


def test_slices_of_a_layer_are_the_layer(serve: Any) -> None:
    class Conv1D(torch.nn.Module):
        """As transformers has it: weights [in, out]."""

        def __init__(self) -> None:
            super().__init__()
            self.weight, self.bias = (
                torch.nn.Parameter(torch.randn(6, 8)),
                torch.nn.Parameter(torch.randn(8)),
            )

    torch.manual_seed(1)
    model = torch.nn.Sequential(Conv1D(), torch.nn.Linear(8, 2))
    x, whole, linear = torch.randn(3, 6), model[0], model[1]
    slices = []
    for rank in range(2):
        model[0] = whole
        serve.slice_layers(model, rank, 2)
        slices.append(model[0])
    assert model[1] is linear
    assert [tuple(part.weight.shape) for part in slices] == [(6, 4), (6, 4)]
    torch.testing.assert_close(
        torch.cat([x @ part.weight + part.bias for part in slices], dim=1),
        x @ whole.weight + whole.bias,
    )


def served(folder: Path, way: str, size: str, workers: int) -> dict[str, Any]:
    """What the program leaves, started by torchrun."""
    environment = os.environ.get(NAMED)
    python = f"{environment}/bin/python" if environment else sys.executable
    asked = subprocess.run([python, "-c", "import transformers"], capture_output=True, text=True)
    if asked.returncode:
        pytest.skip(f"{python} has no transformers; name an environment that has: {NAMED}=<folder>")
    command = [python, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}"]
    command += [
        str(PROGRAM / "serve.py"),
        "--way",
        way,
        "--size",
        size,
        "--out",
        str(folder),
        "--requests",
        "5",
    ]
    one = {"OMP_NUM_THREADS": "1", "TORCH_EXTENSIONS_DIR": str(folder / "compiled")}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, env=os.environ | one
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert not [*folder.glob("compiled/*")], "DeepSpeed compiled something, which takes minutes"
    told: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return told


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "size", "replaced", "share"),
    [
        # Of each block: query, key, value, output, and both layers of its network. Embeddings are
        # whole.
        ("deepspeed-autotp", "bert-small", 2 * 6, 0.71),
        # And half of the output layer, which is then no longer the embedding itself: so small a
        # model gets larger.
        ("deepspeed-autotp", "gpt-neo-small", 2 * 6 + 1, 1.10),
        ("own-slices", "gpt2-small", 2 * 4, 0.70),
        ("deepspeed-engine", "bert-small", 0, 1.0),
        ("plain", "gpt2-small", 0, 1.0),
    ],
)
def test_two_ranks_answer_as_the_plain_model(
    tmp_path: Path, way: str, size: str, replaced: int, share: float
) -> None:
    told = served(tmp_path, way, size, 2)
    assert told["replaced"] == replaced
    assert told["largest_difference"] < 1e-5 < told["largest_score"]
    assert told["weights_bytes"] / told["plain_weights_bytes"] == pytest.approx(share, abs=0.01)


@pytest.mark.slow
def test_linear_layers_in_8_bits_answer_nearly_so(tmp_path: Path) -> None:
    told = served(tmp_path, "int8", "bert-small", 1)
    assert 0 < told["largest_difference"] < 0.1
    assert told["weights_bytes"] < told["plain_weights_bytes"]
