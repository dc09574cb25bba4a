"""The profiler's file, and the command that Nsight Systems wraps ranks in."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from ddlbench.core.record import KERNELS
from ddlbench.train import profiler

from tests.unit.records import SPEC

PROFILED = replace(SPEC, timed=False, profiled=True, workers=1)


@pytest.mark.parametrize("done", [0, 13])
def test_rank_0_leaves_the_kernels_of_the_last_steps(tmp_path: Path, done: int) -> None:
    import torch

    steps = 8
    step = profiler.start(PROFILED, 0, tmp_path, steps, done)
    for number in range(done, PROFILED.epochs * steps):
        with torch.profiler.record_function("a span of ours"):
            torch.ones(64, 64) @ torch.ones(64, 64)
            if number < 9:
                torch.ones(4).sin()  # before the steps that are profiled
        step()
    table = pd.read_parquet(tmp_path / KERNELS).set_index("name")
    assert list(table) == ["on", "calls", "self_s", "annotation"]
    assert table.loc["aten::mm", "calls"] == {0: 5, 13: 1}[done]
    assert table.loc["aten::mm", "self_s"] > 0
    assert set(table["on"]) == {"cpu"}
    assert table.loc["a span of ours", "annotation"]
    assert not table.loc["aten::mm", "annotation"]
    assert "aten::sin" not in table.index


def test_nobody_else_profiles(tmp_path: Path) -> None:
    for spec, rank in ((SPEC, 0), (PROFILED, 1)):
        step = profiler.start(spec, rank, tmp_path, 2)
        for _ in range(4):
            step()
    assert not list(tmp_path.iterdir())


def test_nsys_goes_before_ranks_of_profiled_runs(tmp_path: Path) -> None:
    prefix = profiler.nsys_prefix(PROFILED, "/opt/bin/nsys", Path("results/x"), 0)
    assert prefix == (
        "/opt/bin/nsys", "profile", "--trace=nvtx,osrt", "--sample=none", "--force-overwrite=true",
        "--output=results/x/nsys-%h-%p",
    )  # fmt: skip
    assert profiler.nsys_prefix(SPEC, "/opt/bin/nsys", tmp_path, 0) == ()
    assert profiler.nsys_prefix(PROFILED, None, tmp_path, 0) == ()
    assert profiler.nsys_prefix(PROFILED, "/opt/bin/nsys", tmp_path, 1) == ()
