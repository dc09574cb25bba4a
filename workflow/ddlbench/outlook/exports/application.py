"""The scaling section of an application for compute time, in Markdown; pandoc makes LaTeX and DOCX
of it.

pandoc {folder}/scaling.md -o {folder}/scaling.docx
"""

import re
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from ddlbench.analysis.scaling import MEASURES
from ddlbench.core.files import printable, write_text
from ddlbench.core.formatting import around, four_digits
from ddlbench.settings.config import ConfigError

PACKAGE = ""
TEMPLATE = Path(__file__).with_name("application.md.jinja")
ALONG = (
    "workers",
    "repeats",
    "ref_workers",
    "spread_low",
    "spread_high",
    *(f"{name}{end}" for name in MEASURES for end in ("", "_low", "_high")),
)


def write(document: dict[str, Any], runs: pd.DataFrame, epochs: pd.DataFrame, folder: Path) -> None:
    """Write `scaling.md`, by `application.md.jinja`, from the study `document` alone."""
    if "budget" not in document:
        raise ConfigError("study.json: has no budget; make it again: snakemake page")
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
        finalize=escaped,
    )  # fmt: skip
    environment.filters["number"] = four_digits
    environment.filters["measure"] = measure
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    same, differing = same_and_differing(document["scaling"])
    write_text(folder / "scaling.md", template.render(document, same=same, differing=differing))


def same_and_differing(scaling: list[dict[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """Return the settings that all points share, and the names of those in which points differ."""
    names = [
        name for name in dict.fromkeys(name for row in scaling for name in row) if name not in ALONG
    ]
    values = {name: [row.get(name) for row in scaling] for name in names}
    differing = [name for name in names if any(value != values[name][0] for value in values[name])]
    same = {
        name: values[name][0]
        for name in names
        if name not in differing and values[name][0] is not None
    }
    return same, differing


def measure(point: dict[str, Any], name: str) -> str:
    """Return a measure of a point with its 95 % interval, if there is one: `3.8 (3.7 to 3.9)`."""
    return around(point[name], point.get(f"{name}_low"), point.get(f"{name}_high"))


def escaped(value: Any) -> str:
    """Escape text so that Markdown shows it unchanged: no text of a study becomes a link, cell,
    formula or markup.
    """
    return re.sub(r"([\\`*_{}<>#\[\]!|~&$])", r"\\\1", printable("" if value is None else value))
