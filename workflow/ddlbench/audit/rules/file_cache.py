"""Whether data was in memory (warm) or on disks (cold) when a run began."""

from ddlbench.analysis.together import COMPARED
from ddlbench.audit import MLCOMMONS, Findings, Material, rule
from ddlbench.audit._compare import differing, timed


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
