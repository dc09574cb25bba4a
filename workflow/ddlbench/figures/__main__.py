"""Draw one figure: `python -m ddlbench.figures --tables DIR --out PREFIX --options JSON`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from ddlbench import registry
from ddlbench.figures import _style, _tables


def write(tables: Path, prefix: Path, options: Mapping[str, Any]) -> None:
    """Draw from the tables in a folder and write `<prefix>.png`, `.svg` and `.pdf`.

    `options` is what `plan.figure_options` gives, and `reference`, the path of a CSV file or None.
    """
    shown = _tables.load(tables, options["runs"], options["select"])
    reference = pd.read_csv(options["reference"]) if options.get("reference") else None
    given = _tables.Options(options["title"], options["device"], options["device_name"], reference)
    _style.save(registry.member("figures", options["plot"]).draw(shown, given), prefix)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path, required=True, help="folder of runs.parquet, epochs.parquet, ...")
    parser.add_argument("--out", type=Path, required=True, help="the files' path without suffix")
    parser.add_argument(
        "--options",
        type=json.loads,
        required=True,
        help="JSON: plot, title, runs (ids), select, reference, device, device_name",
    )
    arguments = parser.parse_args()
    write(arguments.tables, arguments.out, arguments.options)


if __name__ == "__main__":
    main()
