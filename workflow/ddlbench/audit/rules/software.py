"""With which software runs were made: versions, commits, variables of the environment."""

import pandas as pd

from ddlbench.analysis.recorded import variables
from ddlbench.analysis.together import COMPARED, of_programs
from ddlbench.audit import MLCOMMONS, SC15, Finding, Findings, Material, rule
from ddlbench.audit._compare import differing, ids, present
from ddlbench.train.assignment import RELEVANT
from ddlbench.train.frameworks import TIMEOUT as TIMEOUT_OF_OURS
from ddlbench.train.frameworks import horovod

TIMEOUTS = {TIMEOUT_OF_OURS, horovod.TIMEOUT}  # how long ranks wait for each other changes no speed


@rule(
    "warning",
    "runs.torch_version",
    "train the runs of the older version again, or say which figure shows which version",
    f"{SC15}, rule 9",
    also=[
        *(
            "torch_from",
            "python_version",
            "framework_version",
            "loader_version",
            "nccl_version",
            "container",
            "commit",
        ),
    ],
)
def same_versions(material: Material) -> Findings:
    """Check that versions of PyTorch, Python, NCCL, a framework, a loader and ddlbench itself (its
    commit), the origin of PyTorch, and the container are the same in all runs that are compared.

    All that differ are listed; kernels change between versions. A run in a container and one
    without differ, too.
    """
    runs = material.runs
    yield from differing(runs, "commit", ["machine"], "commits") if "commit" in runs else ()
    keys = {
        "torch_version": [],
        "python_version": [],
        "framework_version": ["framework"],
        "loader_version": ["loader"],
    }
    keys |= {"torch_from": [], "nccl_version": [], "container": []}
    for column in present(runs, list(keys)):
        filled = (
            runs.assign(container=runs["container"].fillna("none"))
            if column == "container"
            else runs
        )
        yield from differing(filled, column, [*COMPARED, *keys[column]], f"values of {column}")


@rule(
    "warning",
    "runs.run",
    "commit the changes; train the runs again with this version, which records it",
    f"{SC15}, rule 9; {MLCOMMONS}, reproducibility",
    also=[
        *(
            "commit",
            "torch_version",
            "hosts",
            "initial_weights_sha256",
            "data_sha256",
            "uncommitted_changes",
        ),
        "records",
    ],
)
def origin_recorded(material: Material) -> Findings:
    """Check that each run says its commit, the version of PyTorch, its computers, its initial
    weights and, where data is read, its digest; and that it was made by a version of ddlbench that
    can be obtained again.
    """
    runs = material.runs
    if "records" in runs:  # others' logs have other words for it, or none
        runs = runs[runs["records"].fillna("ours") == "ours"]
    programs = of_programs(runs)
    for column in ("commit", "torch_version", "hosts", "initial_weights_sha256", "data_sha256"):
        silent = (
            runs[column].isna() | (runs[column] == "")
            if column in runs
            else pd.Series(True, runs.index)
        )
        if column == "data_sha256" and "form" in runs:
            silent &= runs["form"].notna()
        if column not in (
            "commit",
            "hosts",
        ):  # programs do not report what else they load, draw or read
            silent &= ~programs
        if silent.any():
            text = f"{column} is recorded by {len(runs) - int(silent.sum())} of {len(runs)} runs"
            yield Finding(ids(runs[silent]), text)
    changed = (
        runs[runs["uncommitted_changes"].fillna(False).astype("bool")]
        if "uncommitted_changes" in runs
        else runs[:0]
    )
    if len(changed):
        text = (
            f"{len(changed)} of {len(runs)} runs were made with files that differ from their commit"
        )
        yield Finding(ids(changed), text)


@rule(
    "warning",
    "runs.command runs.framework runs.workers",
    "train the deviating runs again with one machine file, or say which figure shows which setting",
    f"{SC15}, rule 9",
    also=["environment"],
)
def same_environment(material: Material) -> Findings:
    """List variables of the environment that ranks were given or found where runs of one framework
    and worker count differ; numbers of threads, NCCL's (not on CPUs) and those about TF32 also
    between frameworks.

    Threads, network and memory settings change speed. Values that might be secrets are hidden in
    records and cannot differ.
    """
    runs = material.runs
    found = (
        runs["environment"]
        if "environment" in runs
        else pd.Series(None, runs.index, dtype="object")
    )
    seen_by_ranks = (None if pd.isna(text) else str(text) for text in found)
    given = [*zip(runs["command"], seen_by_ranks, strict=True)]
    environments = {pair: _environment(*pair) for pair in set(given)}
    for name in sorted({name for values in environments.values() for name in values} - TIMEOUTS):
        threads = name.endswith("_NUM_THREADS")  # a launcher that sets none leaves its own
        told = name.startswith(RELEVANT) or "TF32" in name
        values: dict[tuple[str, str | None], str | None] = {}
        for (command, seen), some in environments.items():
            # A record of before says only what its command gave, beside others that say what ranks
            # found.
            is_silent = threads or (told and seen is None and found.notna().any())
            values[command, seen] = some.get(name, None if is_silent else "unset")
        if len({*values.values()} - {None}) > 1:
            table = runs.assign(
                **{name: pd.Series([values[pair] for pair in given], runs.index, dtype="object")}
            )
            if (
                name.startswith("NCCL_") and "device" in table
            ):  # CPUs do not use it; a launcher may set it all the same
                table = table[table["device"] != "cpu"]
            alike = threads or name.startswith("NCCL_") or "TF32" in name
            keys = [*COMPARED, "workers"] if alike else [*COMPARED, "framework", "workers"]
            yield from differing(table, name, keys, f"values of {name}")


def _environment(command: str, found: str | None) -> dict[str, str]:
    """Return the variables of a run: those of its command, and what its ranks found."""
    return variables(command) | variables(f"env {found or ''}")
