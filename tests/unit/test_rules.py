"""What makes finished work stale although nothing about it has changed: another text of the rules that made it.

Snakemake compares a rule's shell command with the one that made a file. These two have stood since the first records: a
change of theirs prepares every data set and trains every run again, on every cluster. Change what they call instead.
"""

import re

import pytest
from ddlbench.plan import stale

from tests.conftest import ROOT

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
    commands = ["".join(re.findall(r'"(.*)"', shell)) for shell in re.findall(r"shell:\n((?: {8}\S.*\n)+)", text)]
    assert TEXTS[file] in commands or (file == "train" and TEXTS[file] == stale.COMMAND)


def test_rule_train_has_the_command_that_the_plan_compares() -> None:
    assert re.search(r"shell:\n +stale\.COMMAND\n", (ROOT / "workflow/rules/train.smk").read_text(encoding="utf-8"))
