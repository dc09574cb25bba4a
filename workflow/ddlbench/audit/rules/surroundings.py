"""Where runs were made, and with which code: computers, versions, resources, files in memory,
commits.
"""

from itertools import combinations

import pandas as pd

from ddlbench.analysis.recorded import variables
from ddlbench.analysis.together import CELL, COMPARED, differing_with, of_programs
from ddlbench.audit import MLCOMMONS, SC15, TWELVE_WAYS, Finding, Findings, Material, rule
from ddlbench.audit._compare import differing, groups, ids, in_, present, timed
from ddlbench.train.assignment import TELLING
from ddlbench.train.frameworks import TIMEOUT as TIMEOUT_OF_OURS
from ddlbench.train.frameworks import horovod

WITHOUT_SIDES = [name for name in CELL if name not in differing_with("framework", "loader", "form")]
TIMEOUTS = {TIMEOUT_OF_OURS, horovod.TIMEOUT}  # how long ranks wait for each other changes no speed


@rule(
    "warning",
    "runs.data_cached_share runs.workers",
    "read the data once before the first run, or drop it from memory before each",
    f"{MLCOMMONS}, 'caches must be cleared or empty'; seen on every first run of a study",
)
def same_cache_state(material: Material) -> Findings:
    """Check that runs that are compared find their data in the same place: in memory (warm) or on
    disks (cold).

    The first run of a study reads from disks, the next ones from memory. What counts is the share
    of the data that was in memory before the run.
    """
    share = material.runs["data_cached_share"]
    state = share.map(
        lambda value: "warm" if value > 0.9 else "cold" if value < 0.1 else "partly warm"
    )
    runs = timed(material.runs.assign(cache=state))
    return differing(runs, "cache", [*COMPARED, "form", "workers"], "states of the file cache")


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
    can be had again.
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
        ):  # what else a program loads, draws or reads, only it knows
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
    "error",
    "runs.cpu",
    "name the kind of node in the machine file's partition and train the deviating runs again",
    f"{SC15}, rule 9; {TWELVE_WAYS}, number 4",
    also=["gpu", "driver"],
)
def same_hardware(material: Material) -> Findings:
    """Check that runs that are compared ran on computers with the same processor, GPU and driver.

    Partitions may hide several kinds of nodes behind one name.
    """
    for column in present(material.runs, ["cpu", "gpu", "driver"]):
        yield from differing(material.runs, column, ["machine"], f"values of {column}")


@rule(
    "note",
    "runs.hosts runs.workers",
    "look at `hosts` in table runs when repeats differ, and at ddlbench nodes",
    f"{SC15}, rule 9",
    also=["kernel"],
)
def same_hosts(material: Material) -> Findings:
    """List hosts where runs of one worker count did not all run on the same ones, and Linux if
    releases differ.

    It breaks no comparison; it is where to look when one run is slow. `ddlbench nodes` compares
    hosts with each other.
    """
    if "kernel" in material.runs:
        yield from differing(material.runs, "kernel", ["machine"], "kernels")
    for cell, rows in groups(material.runs, ["machine", "workers"]):
        rows = rows[rows["hosts"] != ""]
        if rows["hosts"].nunique() < 2:
            continue
        counts = rows["hosts"].str.split(",").explode().value_counts()
        counts = counts[counts < len(rows)].sort_index().sort_values(kind="stable")
        parts = [
            f"{host} in {count} of {len(rows)} runs" for host, count in counts[:8].items()
        ]  # table runs has all
        more = [f"and {len(counts) - 8} more hosts"] if len(counts) > 8 else []
        rare = rows["hosts"].map(rows["hosts"].value_counts()).sort_values(kind="stable")
        yield Finding(ids(rows.loc[rare.index]), f"hosts{in_(cell)}: {', '.join(parts + more)}")


@rule(
    "error",
    "runs.hosts runs.workers runs.framework runs.loader",
    "train both sides on the same nodes: name them in the machine's file, or make more repeats,"
    " which the plan mixes",
    f"{SC15}, section 4.1; equal frameworks on two nodes that are 2 % apart differ significantly in"
    " most studies",
)
def nodes_confounded(material: Material) -> Findings:
    """Check that frameworks and loaders that are compared do not each keep to nodes of their own.

    If all repeats of one side ran on one node, and those of the other elsewhere, a difference may
    be that of the nodes: no repeat tells. Where repeats of both ran on several nodes each, the
    intervals have the nodes in them.
    """
    runs = timed(material.runs) if "throughput_images_per_s" in material.runs else material.runs
    for what, rows in groups(runs[runs["hosts"] != ""], [*COMPARED, *WITHOUT_SIDES]):
        sides = {
            f"{framework} with {loader}": side["hosts"]
            for (framework, loader), side in rows.groupby(["framework", "loader"])
            if len(side) > 1
        }
        for (left, ours), (right, theirs) in combinations(sides.items(), 2):
            nodes = [
                {host for hosts in side for host in hosts.split(",")} for side in (ours, theirs)
            ]
            on_one = ours.nunique() == 1 or theirs.nunique() == 1
            if on_one and not nodes[0] & nodes[1]:
                parts = [
                    f"{name} on {_few(of)}" for name, of in zip((left, right), nodes, strict=True)
                ]
                yield Finding(
                    ids(rows), f"sides and nodes are the same{in_(what)}: {', '.join(parts)}"
                )
                break  # one cause


def _few(hosts: set[str]) -> str:
    names = sorted(hosts)
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


@rule(
    "warning",
    "runs.workers",
    "train with one machine file",
    f"{SC15}, rules 2 and 9",
    also=["workers_per_node", "loader_threads", "cores_per_rank"],
)
def same_resources(material: Material) -> Findings:
    """Check that runs that are compared at one number of workers have the same workers per node,
    cores and loader threads.

    Fewer threads per worker starve a loader; fewer workers per node leave each more memory
    bandwidth and network.
    """
    for column in present(material.runs, ["workers_per_node", "loader_threads", "cores_per_rank"]):
        yield from differing(
            timed(material.runs), column, [*COMPARED, "workers"], f"values of {column}"
        )


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
        told = name.startswith(TELLING) or "TF32" in name
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


@rule(
    "note",
    "runs.energy_j runs.workers_per_node runs.workers",
    "compare energy from one full node on",
    "arXiv:2510.12166 (compare machines per node)",
)
def energy_per_node(material: Material) -> Findings:
    """Check that energies are compared between nodes that are filled alike.

    A host's energy is that of the whole node: with two of four workers on it, each seems to cost
    twice as much.
    """
    for what, rows in groups(material.runs, ["machine", "dataset", "model", "recipe"]):
        filled = sorted(rows["workers_per_node"].unique())
        if len(filled) > 1:
            text = f"nodes with {', '.join(map(str, filled))} workers{in_(what)}"
            yield Finding(
                ids(rows), f"energies of {text}; idle parts of a node are counted in full"
            )
