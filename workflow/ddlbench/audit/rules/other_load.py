"""Whether something else kept the computer of a timed run busy: other processes, or another run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ddlbench.audit import SC15, Finding, Findings, Material, rule
from ddlbench.audit._compare import ids, timed
from ddlbench.audit._neighbours import COLUMNS as NEIGHBOURS


@rule(
    "warning",
    "runs.others_cores",
    "let nothing else run on the machine while it trains, and train these runs again",
    f"{SC15}, rule 9",
    {"others_cores": 1.0},
)
def busy_machine(material: Material) -> Findings:
    """Check that nothing else keeps the machine busy while a timed run trains: others take at most
    half a core.

    What others do is not visible in the parts of a step, and differs from run to run.
    """
    runs = material.runs
    busy = runs[runs["others_cores"] > 0.5]
    if len(busy):
        worst = busy.sort_values("others_cores", ascending=False)
        most = worst["others_cores"].iloc[0]
        text = (
            f"other processes kept more than half a core busy in {len(busy)} of {len(runs)} runs,"
            f" at most {most:.2g}"
        )
        yield Finding(ids(worst), text)


@rule(
    "error",
    "runs.started_s runs.train_s runs.hosts",
    "give timed runs whole nodes, and start one study after the other; train the timed runs again",
    f"{SC15}, rule 9; design of this workflow",
    also=["begun_s", "run_s"],
)
def overlapping_runs(material: Material) -> Findings:
    """Check that while a timed run trains, no other run is on its computer: none trains there,
    starts up or ends.

    Each would measure the other. The records of all studies in the same folder of results are
    looked at, untimed runs among them; those of other folders are not known here: see
    `busy-machine`. Of a run that went on from a checkpoint only what came after it is looked at:
    before, it was elsewhere, or nowhere.
    """
    slack_s = 1.0  # processes say when they began to a second
    runs = timed(material.runs)
    others = material.tables.get("neighbours", pd.DataFrame(columns=[*NEIGHBOURS]))
    went_on = runs["resumes"].fillna(0) > 0 if "resumes" in runs else pd.Series(False, runs.index)
    resumed = others[others["run"].isin(runs.loc[went_on, "run"])]
    runs = runs[~went_on]
    trained = pd.concat(
        [
            _on_hosts(runs, runs["started_s"], runs["started_s"] + runs["train_s"]),
            _on_hosts(resumed, resumed["begun_s"], resumed["ended_s"]),
        ]
    )
    known = [trained, _on_hosts(others, others["begun_s"], others["ended_s"])]
    if {"begun_s", "run_s"} <= {*runs}:
        known.append(_on_hosts(runs, runs["begun_s"], runs["begun_s"] + runs["run_s"]))
    on_hosts = pd.concat(known).dropna().groupby("host")
    present_there = {host: _Present.of(rows) for host, rows in on_hosts}
    told: set[frozenset[str]] = set()
    for run in trained.to_dict("records"):
        there = present_there.get(run["host"])
        if there is None:
            continue
        for other, seconds in there.longest_with(run["begin"], run["end"], slack_s).items():
            pair = frozenset((run["run"], other))
            if len(pair) == 2 and pair not in told:
                told.add(pair)
                text = f"{other} was on {run['host']} for {seconds:.1f} s while the run trained"
                yield Finding((run["run"], other), text)


@dataclass(frozen=True)
class _Present:
    """The times when runs were on a host, by their begin; `latest` is the latest end up to each.

    Thousands of runs are seldom on a host at the same time: two binary searches leave only those
    that can be.
    """

    runs: list[str]
    begin: np.ndarray[Any, Any]
    end: np.ndarray[Any, Any]
    latest: np.ndarray[Any, Any]

    @classmethod
    def of(cls, rows: pd.DataFrame) -> _Present:
        """Return the times of these rows, which have columns `run`, `begin` and `end` [s]."""
        rows = rows.sort_values("begin")
        end = rows["end"].to_numpy(float)
        latest = np.maximum.accumulate(end)
        return cls([*rows["run"].astype(str)], rows["begin"].to_numpy(float), end, latest)

    def longest_with(self, begin: float, end: float, slack_s: float) -> dict[str, float]:
        """Return for how long [s] each run was there between two times, if longer than `slack_s`;
        sorted by run.
        """
        first = int(np.searchsorted(self.latest, begin + slack_s, side="right"))
        behind = int(np.searchsorted(self.begin, end - slack_s))
        longest: dict[str, float] = {}
        latest_begin = np.maximum(self.begin[first:behind], begin)
        both_s = np.minimum(self.end[first:behind], end) - latest_begin
        for place in np.flatnonzero(both_s > slack_s):
            run = self.runs[first + place]
            longest[run] = max(longest.get(run, 0.0), float(both_s[place]))
        return dict(sorted(longest.items()))


def _on_hosts(runs: pd.DataFrame, begin: pd.Series[float], end: pd.Series[float]) -> pd.DataFrame:
    """Return runs with each of their hosts, and from when to when they were there [s since
    1970].
    """
    columns = {
        "run": runs["run"].astype("str"),
        "host": runs["hosts"].str.split(","),
        "begin": begin,
        "end": end,
    }
    rows = pd.DataFrame(columns).explode("host")
    return rows[rows["host"].fillna("") != ""]
