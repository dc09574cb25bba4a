"""Under srun no framework's launcher speaks: ranks meet by SLURM's variables, and train the same."""

from dataclasses import replace

import pytest
import torch

from tests.contract import launches
from tests.contract.launches import on_two


# By SLURM itself, daily for all of them: tests/slurm/test_ranks.py.
@pytest.mark.parametrize("framework", on_two(daily=()))
def test_ranks_of_srun_train_what_the_launchers_ranks_do(tmp_path, data, run, framework):
    """`bin/srun` starts two processes with SLURM's variables and nothing else."""
    theirs = run("plain", framework, 2)
    spec = theirs.spec
    machine = replace(launches.local_machine(), launcher="slurm")
    ours = launches.execute(spec, tmp_path / spec.id, data, machine=machine)
    assert ours.code == 0, ours.output
    (facts,) = ours.values("ddlbench_facts")
    assert "srun --nodes=1 --ntasks=2" in facts["command"]
    assert "torch.distributed.run" not in facts["command"]
    assert ours.steps["loss"].tolist() == theirs.steps["loss"].tolist()
    for mine, other in zip(ours.states(), theirs.states(), strict=True):
        assert [name for name in mine if not torch.equal(mine[name], other[name])] == []
