"""What a source claims is not repeated beside tables that contradict it.

`snakemake verdicts` sets claims beside a study's runs (table verdicts); this rule reads that table.
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from ddlbench.audit import Finding, Material

SEVERITY = "warning"
NEEDS = ("verdicts.verdict", "verdicts.claim", "verdicts.measured")
WHAT_TO_DO = "say beside the claim what was measured here, and on which hardware"
SOURCE = "Hoefler and Belli, SC'15, doi:10.1145/2807591.2807644; Ioannidis 2005, doi:10.1371/journal.pmed.0020124"


def check(material: Material) -> Iterator[Finding]:
    """A finding for each claim that runs contradict."""
    verdicts = material["verdicts"]
    for row in verdicts[verdicts["verdict"] == "contradicted"].to_dict("records"):
        said = f"{row['measured']:.4g}"
        if pd.notna(row.get("low")) and pd.notna(row.get("high")):
            said += f" ({row['low']:.4g} to {row['high']:.4g})"
        published = row.get("published")
        beside = f"; published is {published:.4g}" if pd.notna(published) else ""
        runs = tuple(str(row["runs"]).split()) if pd.notna(row.get("runs")) else (str(row["claim"]),)
        yield Finding(runs, f"{row['source']}, {row['place']}: {row['claim']}: measured {said}{beside}")
