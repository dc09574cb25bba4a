"""The guard of patches of foreign code, and that every patch says what it is for. What each mends has its own tests."""

import ast
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from ddlbench import mends
from ddlbench.core import registry
from ddlbench.run.watch import remove_build_locks, watch

FILES = sorted((registry.PACKAGE / "mends").glob("[!_]*.py"))


@pytest.mark.parametrize(
    ("installed", "tried", "refused"),
    [
        ("2.13.0", "2.13", False),
        ("2.13.0+cpu", "2.13.0", False),  # labels of builds are no releases
        ("2.13.1.post2+cu130", "2.13", False),
        ("2.13", "2.13.0", True),
        ("2.130.0", "2.13", True),
        ("3.0.0", "2.13", True),
    ],
)
def test_a_mend_is_for_its_releases(installed: str, tried: str, refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mends, "version", lambda _: installed)
    if not refused:
        mends.only_for("somewhat", (tried, "1.0"), "its_file")
        return
    with pytest.raises(mends.ReleaseError) as error:
        mends.only_for("somewhat", (tried, "1.0"), "its_file")
    said = str(error.value)
    assert said.startswith(f"somewhat {mends.release('somewhat')} ") and "\n" not in said
    assert f"allowed: {tried} or 1.0" in said and "mends/its_file.py" in said


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_mend_says_for_which_releases_it_is(path) -> None:  # type: ignore[no-untyped-def]
    source = path.read_text()
    words = " ".join((ast.get_docstring(ast.parse(source)) or "").split())
    assert any(character.isdigit() for character in words.split(". ")[0]), "the first line names the release"
    guarded = [name for name in ("only_for(", "private(") if name in source]
    assert guarded or "Without a guard:" in words or "calls `guard` first" in words
    assert not guarded or f'"{path.stem}")' in source, "the guard names its own file"


def test_a_private_name_that_is_gone_is_one_sentence() -> None:
    owner = type("Owner", (), {"_here": 3})
    assert mends.private(owner, "_here", "torch", ("2.13",), "its_file") == 3
    with pytest.raises(mends.ReleaseError, match=r"^torch \S+ has no _gone, which ddlbench/mends/its_file.py needs"):
        mends.private(owner, "_gone", "torch", ("2.13",), "its_file")


def _patched() -> dict[str, Callable[[], object]]:
    """Every mend of what a rank trains with that would do harm in another release, as it is begun."""
    from ddlbench.mends import (
        dali_epochs,
        deepspeed_loss_scale,
        deepspeed_on_cpu,
        deepspeed_one_bit,
        deepspeed_watchers,
        deepspeed_zero,
    )

    return {
        "dali_epochs": lambda: dali_epochs.EpochDecoder(None, "nvidia-dali-cuda120", 2, 4),
        "deepspeed_loss_scale": lambda: deepspeed_loss_scale.give(None, None, None),
        "deepspeed_on_cpu": deepspeed_on_cpu.enable,
        "deepspeed_one_bit": lambda: deepspeed_one_bit.take_first_step(None),
        "deepspeed_watchers": lambda: deepspeed_watchers.watch_reductions(None, None, 0, lambda m: m, lambda: True),
        "deepspeed_zero": deepspeed_zero.guard,
    }


@pytest.mark.parametrize("name", _patched())
def test_another_release_is_refused_before_anything_is_changed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mends, "version", lambda _: "99.1+cu130")
    with pytest.raises(mends.ReleaseError, match=rf" 99\.1 was not tried with ddlbench/mends/{name}\.py"):
        _patched()[name]()


def test_ranks_wait_as_long_as_they_are_told_in_groups_that_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.distributed.distributed_c10d as c10d
    from ddlbench.mends.group_patience import be_patient

    for name in ("default_pg_timeout", "default_pg_nccl_timeout"):
        monkeypatch.setattr(c10d, name, timedelta(minutes=10))
    assert be_patient(None) == timedelta(minutes=10)
    assert be_patient(7.0) == timedelta(seconds=7)
    assert c10d.default_pg_timeout == c10d.default_pg_nccl_timeout == timedelta(seconds=7)


def test_horovods_optimizer_gets_back_what_lies_beside_the_groups() -> None:
    from ddlbench.mends import horovod_optimizer

    recipes, distributed = SimpleNamespace(max_grad_norm=None, groups=[1]), SimpleNamespace(max_grad_norm=1.0, size=2)
    assert vars(horovod_optimizer.restore(distributed, recipes)) == {"max_grad_norm": None, "groups": [1], "size": 2}


def test_a_job_waits_for_no_builder_that_was_killed(tmp_path: Path, handlers: None) -> None:
    lock = tmp_path / "torch_extensions/py311_cpu/an_op/lock"
    lock.parent.mkdir(parents=True)
    variables = {"XDG_CACHE_HOME": str(tmp_path)}
    with lock.open("w") as file, subprocess.Popen(["sleep", "60"], stdin=file) as builder:
        file.close()
        remove_build_locks(variables)
        assert lock.exists(), "its builder lives"
        builder.kill()
    remove_build_locks(variables | {"SLURM_JOB_ID": "1"})
    assert lock.exists(), "its builder may live on another node"
    wait = f"while [ -e {lock} ]; do sleep 0.1; done"
    assert watch(["env", f"XDG_CACHE_HOME={tmp_path}", "timeout", "9", "sh", "-c", wait], tmp_path).code == 0
