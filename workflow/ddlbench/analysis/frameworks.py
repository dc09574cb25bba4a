"""Table `frameworks`: what each framework of the house shares out, how its ranks communicate, its
options, its version.

After Table 1 of Aach et al. 2023, doi:10.1186/s40537-023-00765-w, of the frameworks that are here.
The members say it themselves (`frameworks/`). The version is the one installed where the table is
made; what a run used is in its record.
"""

from pathlib import Path
from typing import Any

from ddlbench.core import registry
from ddlbench.core.columns import Column, write_csv

COLUMNS = (
    Column("framework", "str", "Its name in a study."),
    Column("splits", "str", "What it shares out over ranks."),
    Column("communicates", "str", "What ranks send each other, when, and by which library."),
    Column("options", "str", "What a variant of it may set, with what holds otherwise."),
    Column("package", "str", "The package that it is of."),
    Column(
        "version", "str", "The version of that package that is installed here; null if it is not."
    ),
)


def rows() -> list[dict[str, Any]]:
    """Return one row per member of the room `frameworks`, in the columns of COLUMNS."""
    table = []
    for name in registry.members("frameworks"):
        member, defaults = (
            registry.member("frameworks", name),
            registry.option_defaults(name).items(),
        )
        row = {"framework": name, "splits": member.SPLITS, "communicates": member.COMMUNICATES}
        row["options"] = ", ".join(
            f"{option}: {value}".lower() for option, value in sorted(defaults)
        )
        table.append(
            row | {"package": member.DISTRIBUTION, "version": registry.release(member.DISTRIBUTION)}
        )
    return table


def write(out: Path) -> None:
    """Write the table as csv."""
    write_csv(rows(), COLUMNS, out)
