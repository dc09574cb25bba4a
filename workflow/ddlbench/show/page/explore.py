"""Series over workers for people who explore them on the page: each point has its rate and
speed-up.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from ddlbench.analysis.comparisons import setting_titles, varying_settings
from ddlbench.analysis.scaling import loader_names, scaling
from ddlbench.analysis.together import SERIES
from ddlbench.core.registry import OWN

MEASURES = {"rate": "throughput_images_per_s", "speed": "speed_up"}


def series(runs: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the series over workers, with the interval of each measure where there is one."""
    table = scaling(runs).assign(named=loader_names)
    tell = varying_settings(table)
    found = []
    for _, rows in table.groupby(list(SERIES), dropna=False, sort=False):
        name = ", ".join([who(rows.iloc[0]), *setting_titles(rows.iloc[0].to_dict(), tell)])
        points = []
        for row in rows.astype(object).where(rows.notna(), None).to_dict("records"):
            sides = {
                short: [row[f"{measure}{end}"] for end in ("", "_low", "_high")]
                for short, measure in MEASURES.items()
            }
            points.append({"workers": row["workers"], **sides})
        found.append({"name": name, "points": points})
    return found


def who(row: Any) -> str:
    """Return `ddp and native`; of a program its name; of records of others submitter and system."""
    if pd.isna(row["loader"]):
        return str(row["machine"])
    named = row.get("named", row["loader"])
    return (
        str(row["framework"])
        if named in (OWN, row.get("model"))
        else f"{row['framework']} and {named}"
    )
