"""`ddlbench audit`: what the rules of the audit find in the study's tables, or in those that are
named.
"""

from pathlib import Path

from ddlbench.commands.call import Call, older
from ddlbench.commands.of_study import ALL, JSON
from ddlbench.core import layout
from ddlbench.core.columns import write_csv
from ddlbench.settings.config import CONVERGENCE, ConfigError

PLACE = 5
HELP = "unfair comparisons, from the study's tables; exit code 1 on errors"
ARGUMENTS = (
    JSON
    | ALL
    | {
        "tables": {
            "type": Path,
            "nargs": "?",
            "help": "any folder of tables; its audit.csv is written",
        },
        "--out": {"type": Path, "help": "another file for the findings"},
    }
)


def run(call: Call) -> int:
    """Answer, and return the exit code."""
    from ddlbench.audit import finding_rows, material
    from ddlbench.audit.check import audit

    named, out = call.options.tables, call.options.out
    folder: Path = named or Path(layout.tables(call.settings.plan.home))
    if not (named or (folder / "runs.parquet").exists()):
        raise ConfigError(
            f"{folder}: has no tables to audit; make them: {call.snakemake('tables')}"
        )
    about = (None, ()) if named else (Path(layout.runs()), call.settings.plan.further)
    try:
        rows = audit(material.of_study(folder, CONVERGENCE, *about))
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if out or named:
        write_csv(rows, finding_rows.COLUMNS, out or named / "audit.csv")
    answer = [
        *([] if named else older(call.settings.plan, folder / "runs.parquet")),
        *finding_rows.lines(rows, call.all),
    ]
    if named and not call.json:  # they are of no study, which could be made again
        print(*answer, sep="\n", flush=True)
    else:
        call.show([f"all findings: {folder}/audit.csv"], rows, "tables", answer=answer)
    return 1 if finding_rows.worst(rows, "error") else 0
