"""What Snakemake reads: rules whose text makes finished work stale, and profiles of clusters."""

import re
from typing import Any

import pytest
import yaml
from ddlbench.plan import stale
from ddlbench.settings.machine import load_machine
from ddlbench.settings.study import load_study
from snakemake.profiles import ProfileConfigFileParser

from tests.conftest import ROOT

# Snakemake compares a rule's shell command with the one that made a file. These two have stood
# since the first records: a change of theirs prepares every data set and trains every run again on
# every cluster. Change what they call instead.
TEXTS = {
    "train": (
        "python -m ddlbench.run --folder results/runs/{wildcards.run} --manifest {input:q} --spec {params.spec:q} "
        "{resources.supervision} -- {resources.launch} > {log} 2>&1"
    ),
    "data": (
        "python -m ddlbench.prepare {wildcards.dataset} {wildcards.form} {output:q} --source={params.source:q} "
        "--on-error {resources.on_error:q} --workers {threads} 2>&1 | tee {log:q}"
    ),
}


@pytest.mark.parametrize("file", TEXTS)
def test_an_upgrade_makes_nothing_stale(file: str) -> None:
    text = (ROOT / f"workflow/rules/{file}.smk").read_text(encoding="utf-8")
    commands = [
        "".join(re.findall(r'"(.*)"', shell))
        for shell in re.findall(r"shell:\n((?: {8}\S.*\n)+)", text)
    ]
    assert TEXTS[file] in commands or (file == "train" and TEXTS[file] == stale.COMMAND)


def test_rule_train_has_the_command_that_the_plan_compares() -> None:
    rule = (ROOT / "workflow/rules/train.smk").read_text(encoding="utf-8")
    assert re.search(r"shell:\s+stale\.COMMAND\n", rule)


def options(profile: str) -> dict[str, Any]:
    """What `--profile profiles/<profile>` adds to the command line, read in the project's
    folder.
    """
    with (ROOT / "profiles" / profile / "config.yaml").open(encoding="utf-8") as file:
        return dict(ProfileConfigFileParser().parse(file))


def test_make_demo_has_the_options_of_profile_local() -> None:
    for name, value in options("local").items():
        words = f"--{name} {' '.join(value) if isinstance(value, list) else value}".removesuffix(
            " True"
        )
        assert words in (ROOT / "Makefile").read_text(encoding="utf-8") or value == "False"


def test_juwels_says_only_what_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    slurm, juwels = options("slurm"), options("juwels")
    assert (slurm["executor"], slurm["retries"], slurm["slurm-requeue"]) == ("slurm", "2", "True")
    assert slurm["keep-going"] == slurm["rerun-incomplete"] == "True"
    assert juwels == slurm | {"configfile": ["profiles/juwels/ddlbench.yaml"]}
    assert slurm["software-deployment-method"] == ["env-modules"]


@pytest.mark.parametrize("profile", ["slurm", "juwels"])
def test_a_cluster_profile_names_a_study_and_a_queue(
    monkeypatch: pytest.MonkeyPatch, profile: str
) -> None:
    monkeypatch.chdir(ROOT)
    (file,) = options(profile)["configfile"]
    named = yaml.safe_load((ROOT / file).read_text(encoding="utf-8"))
    assert load_study(named["study"]).blocks
    assert load_machine(named["machine"]).partitions


def rules() -> dict[str, str]:
    """The text of each rule, by its name."""
    text = "\n".join(
        path.read_text(encoding="utf-8") for path in sorted((ROOT / "workflow/rules").glob("*.smk"))
    )
    return dict(
        re.findall(r"^(?:rule|checkpoint) (\w+):\n((?:(?: {4}.*)?\n)+)", text, re.MULTILINE)
    )


def test_a_rule_with_a_script_has_its_code_as_a_param() -> None:
    """Times of scripts are not looked at (`patches/snakemake_scripts.py`)."""
    with_script = {
        name: text for name, text in rules().items() if "script:" in text and "output:" in text
    }
    assert with_script.keys() >= {
        "collect",
        "figure_data",
        "figure",
        "page",
        "audit_table",
        "records",
    }
    for name, text in with_script.items():
        (script,) = re.findall(r'"\.\./scripts/(\w+)\.py"', text)
        params = text[text.index("    params:") :]
        assert re.search(rf'sources=.*(of_script\(\s*"{script}"|of_figure\()', params, re.DOTALL), (
            name
        )
        assert "code=" not in text, name
