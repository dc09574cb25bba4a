"""A page of four made-up runs, for tests of the page; its figure is a picture of one mark."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pandas as pd
from ddlbench.analysis import frameworks, slow_nodes
from ddlbench.analysis.claim_verdicts import COLUMNS, NOT_TESTABLE
from ddlbench.analysis.collect import collect
from ddlbench.audit import finding_rows
from ddlbench.audit.check import audit
from ddlbench.audit.material import of_study
from ddlbench.core.columns import write_csv
from ddlbench.plan import budget
from ddlbench.preflight.judge import Problem
from ddlbench.settings.machine import load_machine
from ddlbench.show.page import about, write

from tests.builders.records import SPEC, write_record
from tests.builders.results import bill_row

EVIL = (
    "</title></script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>'\"&{{"
    " 7*7 }}"
)
SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    ' width="100pt" height="50pt" viewBox="0 0 100 50">{}<path id="m1" d="M 0.123456 1 L 5 5"'
    ' style="fill: #ff0000; stroke: none"/><use xlink:href="#m1" x="3" y="4"/></svg>'
)
# A picture that would run a script and load a file, were it part of the page's own tree.
EVIL_SVG = SVG.format(
    "<script>parent.hacked = 1; window.hacked = 1</script><image href='nothing.svg' width='9'"
    " height='9'/><foreignObject width='9' height='9'><img xmlns='http://www.w3.org/1999/xhtml'"
    " src='x' onerror='parent.hacked = 1'/></foreignObject>"
).replace("width=", "onload='parent.hacked = 1' width=", 1)


def of_machine(folder: Path) -> None:
    """A preflight of two hosts, and what `ddlbench nodes` says of them."""
    folder.mkdir(parents=True)
    rank = {
        "read": [],
        "free_bytes": {"results": 5e9},
        "all_reduce": {"gloo": {"bytes": 2**26, "seconds": 0.02}},
    }
    found = [rank | {"rank": number, "host": f"node{number}"} for number in (0, 1)]
    text = json.dumps(
        {"time": 1.79e9, "problems": [asdict(Problem(False, f"node1: {EVIL}"))], "ranks": found}
    )
    (folder / "preflight-test.json").write_text(text)
    row: dict[str, object] = {column.name: None for column in slow_nodes.COLUMNS}
    row |= {
        "part": "compute",
        "verdict": slow_nodes.LIKE,
        "runs": 4,
        "epochs": 8,
        "slow_epochs": 0,
        "excess_s": 0.01,
    }
    write_csv(
        [row | {"host": f"node{number}"} for number in (0, 1)],
        slow_nodes.COLUMNS,
        folder / "nodes.csv",
    )


def make(
    folder: Path,
    title: str = "Made up: a test",
    figures: bool = True,
    again: bool = False,
    records: Sequence[Path] | None = None,
) -> Path:
    """`results/test/local/index.html` in a folder, with records, tables and a figure beside it;
    `again`: the page only.

    `records` are folders of runs in place of four that are made up.
    """
    results = folder / "results"
    home = results / "test" / "local"
    specs = [
        replace(SPEC, framework=framework, repeat=repeat)
        for framework in ("ddp", "horovod")
        for repeat in (1, 2)
    ]
    if not again:
        if records is None:
            records = [write_record(results / "runs", spec) for spec in specs]
        collect(records, home / "tables")
        write_csv(audit(of_study(home / "tables")), finding_rows.COLUMNS, home / "tables/audit.csv")
        claims = [
            dict.fromkeys(COLUMNS, EVIL) | verdict for verdict in ({}, {"verdict": NOT_TESTABLE})
        ]
        pd.DataFrame(claims).to_csv(home / "tables/verdicts.csv", index=False)
        frameworks.write(home / "tables/frameworks.csv")
        of_machine(results / "machines/local")
        (home / "figures").mkdir()
        for suffix, text in (
            (".svg", EVIL_SVG if title == EVIL else SVG.format("")),
            (".pdf", "%PDF"),
            (".csv", "a,b"),
        ):
            (home / f"figures/one{suffix}").write_text(text)
    shown = (
        about.PageFigure(
            "one", title, "efficiency", f"A caption. {title}", tuple(s.id for s in specs)
        ),
    )
    bill = tuple(
        bill_row(
            run=s.id,
            state="done",
            workers=2,
            workers_blocked=2,
            nodes=1,
            wall_s=90.0,
            gpu_hours=0.05,
        )
        for s in specs
    )
    plan = {s.id: 60.0 for s in specs[1:]}
    groups = tuple(budget.groups(bill, load_machine("local")))
    page = about.PageStudy(
        "test",
        title,
        "local",
        "cpu",
        title,
        "snakemake page",
        shown if figures else (),
        bill,
        plan,
        groups=groups,
    )
    write.write(page, home / "index.html", results)
    return home / "index.html"
