"""Snakemake 9: `--until train` trains nothing, and ends well, where a checkpoint comes before
training.

Once it is there, targets of `--until` that no rule asked for lack no output.

Upstream (snakemake/snakemake): `DAG.update_needrun` could take all products of a job that
`in_until` names.
"""

from typing import Any

from ddlbench.patches import private

MINE = ("snakemake", ("9",), "snakemake_until")


def apply(dag: Any) -> None:
    """Make the rules of `--until` count as requested. Raises ReleaseError."""
    names = private(dag, "untilrules", *MINE)
    # Another set: Snakemake may be going through this one.
    dag.targetrules = private(dag, "targetrules", *MINE) | {
        rule for rule in dag.rules if rule.name in names
    }
