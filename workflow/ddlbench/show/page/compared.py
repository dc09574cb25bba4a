"""Two sides of the same runs on one page: what differs first, then ratios with intervals, then
figures of both sides.

`ddlbench compare` calls it. The page is one file; its pictures are those of `figures/`, in which a
framework has two lines, one of each side.
"""

import html
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from ddlbench.analysis.before_after import COLUMNS, Row
from ddlbench.analysis.collect import collect
from ddlbench.core import files, registry
from ddlbench.core.formatting import rounded
from ddlbench.show import figure_data
from ddlbench.show.figures import FigureMember, Options
from ddlbench.show.make_figure import draw
from ddlbench.show.page import picture

FIGURES = {
    "throughput": "Throughput of both sides",
    "step-times": "Where a step's time goes, on both sides",
}
HEADS = {column.name: column.name.replace("_s", " [s]").replace("_", " ") for column in COLUMNS}


def write(
    path: Path, sides: Mapping[str, Sequence[Path]], rows: Sequence[Row], lines: Sequence[str]
) -> None:
    """Write the page. `sides` are folders of runs by the side's name, `lines` are for people."""
    names = list(sides)
    style = (Path(__file__).with_name("page.css")).read_text(encoding="utf-8")
    body = [f"<h1>{html.escape(' and '.join(names))}</h1>", "<ul>"]
    body += [f"<li>{html.escape(line.strip())}</li>" for line in lines]
    table = pd.DataFrame(
        [[_cell(row[name]) for name in HEADS] for row in rows], columns=[*HEADS.values()]
    )
    body += ["</ul>", "<h2>Ratios: after over before, with 95 % confidence intervals</h2>"]
    with pd.option_context("display.max_colwidth", None):  # else names of runs are cut
        body.append(f'<div class="scroll">{table.to_html(index=False, border=0)}</div>')
    with TemporaryDirectory() as aside:
        body += _figures({side: [*folders] for side, folders in sides.items()}, Path(aside))
    head = (
        '<!doctype html><html lang="en"><meta'
        f' charset="utf-8"><title>{html.escape(" and ".join(names))}</title>'
    )
    head += (
        '<meta name="viewport" content="width=device-width"><meta name="color-scheme"'
        ' content="light dark">'
    )
    files.write_text(path, f"{head}<style>{style}</style><body>{''.join(body)}</body></html>\n")


def _cell(value: object) -> str:
    if value is None or value != value:
        return ""
    return rounded(value, 4) if isinstance(value, float) else str(value)


def _figures(sides: Mapping[str, list[Path]], folder: Path) -> list[str]:
    """Draw the figures of both sides, each with its caption."""
    tables: dict[str, list[pd.DataFrame]] = {}
    for side, folders in sides.items():
        collect(folders, folder / "side")
        for name in ("runs", "step_times"):
            table = pd.read_parquet(folder / "side" / f"{name}.parquet")
            table["run"] = f"{side} " + table["run"].astype(str)
            if name == "runs":
                # One series per side: what differs between them is in the name of its lines.
                table = table.assign(
                    machine="both", framework=table["framework"].astype(str) + f", {side}"
                )
            tables.setdefault(name, []).append(table)
    whole = {name: pd.concat(some, ignore_index=True) for name, some in tables.items()}
    runs = whole["runs"]
    device = str(runs["device"].iloc[0]) if len(runs) else "cpu"
    names = {"cpu": "CPU core", "cuda": "GPU"}
    shared = Options("", device, names.get(device, device), tuple(sorted(set(runs["framework"]))))
    figures = []
    for plot, title in FIGURES.items():
        member: FigureMember = registry.member("figures", plot)
        data, svg = folder / f"{plot}.csv", folder / f"{plot}.svg"
        options = replace(shared, title=title)
        figure_data.write(member.data({name: whole[name] for name in member.TABLES}, options), data)
        draw(plot, data, folder / plot, options)
        words = picture.caption(svg).replace("\n", " ")
        drawn = picture.image(svg, f"{title}. {words}")
        figures.append(
            "<figure><div"
            f' class="picture">{drawn}</div><figcaption>{html.escape(words)}</figcaption></figure>'
        )
    return figures
