"""Profiles as Snakemake reads them: JUWELS is any SLURM cluster, with another study and machine."""

from typing import Any

import pytest
import yaml
from ddlbench.settings.machine import load_machine
from ddlbench.settings.study import load_study
from snakemake.profiles import ProfileConfigFileParser

from tests.conftest import ROOT


def options(profile: str) -> dict[str, Any]:
    """What `--profile profiles/<profile>` adds to the command line, read in the project's folder."""
    with (ROOT / "profiles" / profile / "config.yaml").open(encoding="utf-8") as file:
        return dict(ProfileConfigFileParser().parse(file))


def test_juwels_says_only_what_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    slurm, juwels = options("slurm"), options("juwels")
    assert (slurm["executor"], slurm["retries"], slurm["slurm-requeue"]) == ("slurm", "2", "True")
    own = {name: value for name, value in juwels.items() if value != slurm.get(name)}
    assert own == {"configfile": ["profiles/juwels/ddlbench.yaml"]}
    assert slurm["software-deployment-method"] == ["env-modules"]
    assert slurm.keys() <= juwels.keys()


@pytest.mark.parametrize("profile", ["slurm", "juwels"])
def test_a_cluster_profile_names_a_study_and_a_machine_with_a_queue(
    monkeypatch: pytest.MonkeyPatch, profile: str
) -> None:
    monkeypatch.chdir(ROOT)
    (file,) = options(profile)["configfile"]
    named = yaml.safe_load((ROOT / file).read_text(encoding="utf-8"))
    assert load_study(named["study"]).blocks
    assert load_machine(named["machine"]).partitions
