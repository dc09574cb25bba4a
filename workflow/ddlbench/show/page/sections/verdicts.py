"""What these runs say to claims of papers and documents."""

from collections.abc import Sequence
from pathlib import Path

from ddlbench.analysis import claim_verdicts
from ddlbench.settings.config import CONFIG
from ddlbench.show.page import rows
from ddlbench.show.page.sections import Given, Section

READS = ("verdicts.csv",)
COLUMNS = {
    "verdict": "Whether these runs support it.",
    "claim": "What the source claims.",
    "source": "Who says it.",
    "place": "Where in the source.",
    "published": "The number that it gives.",
    "unit": "Unit of that number and of ours; 1 is a plain number or a ratio.",
    "measured": "Ours.",
    "low": "Lower end of our 95 % confidence interval.",
    "high": "Upper end.",
    "n": "Repeats.",
    "why": "Why it cannot be tested here; or what to know of the verdict, and what it rests on.",
    "runs": "The runs.",
}
OF_THE_REST = ("claim", "source", "place", "why")


def make(folder: Path) -> None:
    """Write the table of verdicts, from the study's tables."""
    file = CONFIG / "references/claims.csv"
    claim_verdicts.write(
        file, folder / "runs.parquet", folder / "kernels.parquet", folder / "verdicts.csv"
    )


def tables(given: Given) -> Sequence[rows.PageTable]:
    verdicts, file = given.tables["verdicts"], "tables/verdicts.csv"
    judged = verdicts["verdict"] != claim_verdicts.NOT_TESTABLE
    means = "Verdicts on claims of papers and documents whose conditions these runs meet."
    not_met = "Their conditions are not met here: data set, device, model, workers."
    of_the_rest = {name: COLUMNS[name] for name in OF_THE_REST}
    return [
        rows.plain(
            "verdicts", "Published claims", means, verdicts[judged], COLUMNS, given.ids, file
        ),
        rows.plain(
            *("not-testable", "Claims that these runs cannot test", not_met, verdicts[~judged]),
            of_the_rest,
            given.ids,
            file,
        ),
    ]


SECTION = Section(55, tables, make=make)
