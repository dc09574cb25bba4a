"""Ask all rules about a study's tables, or about published numbers; exit code 1 if one of them finds an error.

python -m ddlbench.audit results/STUDY/tables                          a study; writes audit.csv there
python -m ddlbench.audit results/STUDY/tables/audit.csv                what was written
python -m ddlbench.audit --published config/references/aach2023.csv    numbers that others published
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from ddlbench.audit import _findings, _material
from ddlbench.audit._audit import audit, write
from ddlbench.settings.config import CONVERGENCE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "tables", type=Path, nargs="?", help="a study's folder of tables, or its audit.csv to read again"
    )
    parser.add_argument("--published", type=Path, nargs="+", default=[], help="csv files of published numbers instead")
    parser.add_argument("--out", type=Path, help="the table; left out, audit.csv beside a study's tables, or none")
    given = parser.parse_args()
    if (given.tables is None) == (not given.published):
        parser.error("give a folder of tables, or --published with csv files")
    if given.tables and given.tables.is_file():
        finish(_findings.read(given.tables))
    try:
        if given.published:
            material = _material.published(given.published)
        else:
            material = _material.of_study(given.tables, CONVERGENCE if CONVERGENCE.exists() else None)
    except (OSError, ValueError) as error:
        sys.exit(str(error))
    rows = audit(material)
    out = given.out or (given.tables / "audit.csv" if given.tables else None)
    if out:
        write(rows, out)
    finish(rows)


def finish(rows: Sequence[Mapping[str, str]]) -> NoReturn:
    """Say what was found, and end with 1 on errors."""
    print("\n".join(_findings.lines(rows)))
    sys.exit(1 if _findings.worst(rows, "error") else 0)


if __name__ == "__main__":
    main()
