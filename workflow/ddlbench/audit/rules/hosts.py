"""On which computers runs were made: their hardware, their nodes, and what each worker had of them."""

from itertools import combinations

from ddlbench.analysis.together import CELL, COMPARED, differing_with
from ddlbench.audit import SC15, TWELVE_WAYS, Finding, Findings, Material, rule
from ddlbench.audit._compare import differing, groups, ids, in_parentheses, present, side_of, timed

WITHOUT_SIDES = [name for name in CELL if name not in differing_with("framework", "loader", "form")]


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
        yield Finding(
            ids(rows.loc[rare.index]), f"hosts{in_parentheses(cell)}: {', '.join(parts + more)}"
        )


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
            side_of(str(framework), str(loader)): side["hosts"]
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
                    ids(rows),
                    f"sides and nodes are the same{in_parentheses(what)}: {', '.join(parts)}",
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
            text = f"nodes with {', '.join(map(str, filled))} workers{in_parentheses(what)}"
            yield Finding(
                ids(rows), f"energies of {text}; idle parts of a node are counted in full"
            )
