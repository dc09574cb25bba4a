"""Two timed runs never share a computer at one time.

Each would measure the other.
"""

from __future__ import annotations

from collections.abc import Iterator

from ddlbench.audit import Finding, Material
from ddlbench.audit._compare import timed

SEVERITY = "error"
NEEDS = ("runs.started_s", "runs.train_s", "runs.hosts")
WHAT_TO_DO = "give timed runs whole nodes; train both again"
SOURCE = "Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644, rule 9; design of this workflow"
SLACK_S = 0.5


def check(material: Material) -> Iterator[Finding]:
    """A finding for each run that began before another had ended there."""
    runs = timed(material.runs)
    runs = runs.assign(host=runs["hosts"].str.split(","), ended=runs["started_s"] + runs["train_s"])[
        ["run", "host", "started_s", "ended"]
    ].explode("host")
    runs = runs[runs["host"] != ""].sort_values(["host", "started_s"], kind="stable")
    before = runs.groupby("host")["ended"].cummax().groupby(runs["host"]).shift()
    for place in (runs["started_s"] < before - SLACK_S).to_numpy().nonzero()[0]:
        row = runs.iloc[place]
        earlier = runs.iloc[:place]
        other = earlier[(earlier["host"] == row["host"]) & (earlier["ended"] > row["started_s"] + SLACK_S)].iloc[-1]
        both = min(row["ended"], other["ended"]) - row["started_s"]
        yield Finding((str(row["run"]), str(other["run"])), f"both trained on {row['host']} for {both:.1f} s")
