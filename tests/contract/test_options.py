"""Options of all frameworks and the profilers change how a run is made, and nothing of what it
trains.
"""

from dataclasses import replace

import pandas as pd
import pytest

from tests.contract import launches


def variant(case: str, **options: object) -> launches.RunSpec:
    """A run of DDP with these options."""
    spec = launches.spec_of(case, "ddp", 2)
    return replace(
        spec, framework="variant", options=tuple(sorted({"framework": "ddp", **options}.items()))
    )


COMPILED = [{"compile": True, "compile_mode": mode} for mode in ("default", "reduce-overhead")]


@pytest.mark.more
@pytest.mark.parametrize(
    "options",
    [
        {"channels_last": True},
        *(pytest.param(options, marks=pytest.mark.slow) for options in COMPILED),
    ],
)
def test_the_same_training(tmp_path, data, run, options):
    plain = run("plain", "ddp", 2)
    spec = variant("plain", **options)
    outcome = launches.execute(
        spec, tmp_path / spec.id, data, program=("python", "-m", "ddlbench.train")
    )
    assert outcome.code == 0, outcome.output
    assert outcome.losses() == pytest.approx(plain.losses(), rel=1e-5)


@pytest.mark.more
def test_a_profiled_run_has_kernels_and_a_timeline_of_rank_0(tmp_path, data):
    """Two ranks; `bin/nsys` stands in for Nsight Systems, which needs a GPU's
    machine.
    """
    spec = replace(launches.spec_of("plain", "ddp", 2), profiled=True, timed=False)
    outcome = launches.execute(
        spec, tmp_path / spec.id, data, program=("python", "-m", "ddlbench.train")
    )
    assert outcome.code == 0, outcome.output
    kernels = pd.read_parquet(outcome.folder / "kernels.parquet")
    assert kernels["name"].str.contains("conv", case=False).any()
    assert (kernels["self_s"] >= 0).all()
    assert len(list(outcome.folder.glob("nsys-*.nsys-rep"))) == 1
