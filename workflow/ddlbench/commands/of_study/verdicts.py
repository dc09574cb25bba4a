"""`ddlbench verdicts`: what the study's runs say to the claims of sources, from its table."""

from pathlib import Path

from ddlbench.commands.call import MOST, Call, older
from ddlbench.commands.of_study import ALL, JSON
from ddlbench.core import layout
from ddlbench.settings.config import ConfigError

PLACE = 6
HELP = "published claims, and whether the study's runs support them"
ARGUMENTS = JSON | ALL


def run(call: Call) -> int:
    """Answer, and return the exit code."""
    import pandas as pd

    from ddlbench.analysis import claim_verdicts

    path = Path(layout.table(call.settings.plan.home, "verdicts") + ".csv")
    if not path.exists():
        raise ConfigError(f"{path}: is not made yet; make it: {call.snakemake('tables')}")
    table = pd.read_csv(path)
    *judged, counts = claim_verdicts.lines(table)
    shown = judged if call.all else judged[:MOST]
    answer = [*older(call.settings.plan, path), counts, *shown]
    call.show(
        [f"One row per claim, and why: {path}"], table.to_dict("records"), "tables", answer=answer
    )
    return 0
