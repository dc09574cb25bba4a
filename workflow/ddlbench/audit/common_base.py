"""Where efficiencies rank two frameworks or loaders, throughput ranks them alike.

Each efficiency has its own base. The slower one at every number of workers can have the higher efficiency.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.analysis.together import COMPARED
from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import groups, in_

SEVERITY = "warning"
NEEDS = ("numbers.quantity", "numbers.value", "numbers.framework", "numbers.loader")
WHAT_TO_DO = "compare throughput, or efficiencies against the best base"
SOURCE = "Hoefler and Belli, SC'15, rules 1 and 4"
MORE = 1.05


def check(material: Material) -> Iterator[Finding]:
    """A finding for each point at which the most efficient is not the fastest."""
    numbers = material["numbers"]
    keys = [*COMPARED, "source", "batch_per_worker", "workers"]
    both = numbers[numbers["quantity"].isin(["efficiency", "throughput"])]
    for what, rows in groups(both, keys):
        columns = {q: rows[rows["quantity"] == q] for q in ("efficiency", "throughput")}
        table = columns["efficiency"].merge(columns["throughput"], on=["framework", "loader"], suffixes=("", "_rate"))
        if len(table) < 2 or table.duplicated(["framework", "loader"]).any():
            continue
        best = table.iloc[int(table["value"].argmax())]
        fastest = table.iloc[int(table["value_rate"].argmax())]
        if best["value"] > MORE * fastest["value"] and fastest["value_rate"] > MORE * best["value_rate"]:
            said = [
                f"{one['framework']} with {one['loader']}: "
                f"efficiency {one['value']:.3f}, {one['value_rate']:.6g} images/s"
                for one in (best, fastest)
            ]
            named = (str(best["row"]), str(fastest["row"]))
            yield Finding(named, f"the more efficient is slower{in_(what)}: {'; '.join(said)}")
