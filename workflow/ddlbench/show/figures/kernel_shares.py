"""What profiled runs spent their kernel time on: communication (all-reduce), input (loading,
decoding, copies to the device), computation (convolutions, matrix products), element-wise
operations (with normalisation, pooling, loss and optimizer) and other kernels. Kernels that run at
the same time all count, so communication behind computation is in it. Without a GPU the shares are
of the operators' CPU time.
"""

import math
from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from ddlbench.core import registry
from ddlbench.core.formatting import listed
from ddlbench.show.figure_data import distinguishing, finished
from ddlbench.show.figures import Options, Tables, _bars, _style

FAMILIES = ("communication", "input", "computation", "element-wise", "other")
PARTS = {f"{family.replace('-', '')}_percent": family for family in FAMILIES}
TABLES = ("runs", "kernels")
PUBLISHED = ("allreduce_percent", "io_percent", "cudnn_percent")
OURS = dict(zip(PUBLISHED, PARTS, strict=False))  # by what a reference calls them
# Panels, where they tell bars apart: shares are of single steps, so that epochs do not. Batches do
# where bars of one worker count have several: a worker with more images computes for longer between
# two all-reduces.
OTHERS = tuple(name for name in _bars.OTHERS if name not in ("global_batch", "epochs", "of_epochs"))
MOST = 5  # worker counts that are drawn, with the largest of each panel


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """Return one row per profiled run: its shares [%]."""
    columns = [*OTHERS, "global_batch"]
    more = [column for column in columns if column not in tables["kernels"]]
    return finished(tables, "kernels", more)[["run", *columns, "framework", "workers", *PARTS]]


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """Draw one panel per model, loader, ...; one bar per framework and worker count."""
    table = data.drop(columns=["run", "global_batch", "epochs", "of_epochs"], errors="ignore")
    batches = data["global_batch"] // data["workers"]
    table = table.assign(published=False, batch_per_worker=batches)
    bars = [*OTHERS, "framework", "workers"]
    others = [*OTHERS, *distinguishing(table, bars, ["batch_per_worker"])]
    table = pd.concat([table, published(table, options.reference, others)], ignore_index=True)
    shown, left_out = chosen(table, others)
    table = table[table["workers"].isin(shown)]
    figure, panels = _bars.stacks(table, PARTS, options, others, dots=False)  # all bars end at 100
    if left_out:
        figure.note(
            f"Not drawn: {listed([str(count) for count in left_out])} workers; the CSV file has all"
            " of ours."
        )
    for axes, rows in panels:
        axes.set_xlim(0, 100)
        if rows["published"].any():
            figure.note("Paler bars are published shares; their loading may count other things.")
    shares = {label: data[part].median() for part, label in PARTS.items()} if panels else {}
    result = f"Median shares of kernel time: {_style.ranked(shares, '%')}." if panels else ""
    return _bars.finished(figure, "kernel time [%]", options, PARTS, panels, result)


def chosen(table: pd.DataFrame, others: Sequence[str]) -> tuple[list[int], list[int]]:
    """Return the worker counts that are drawn, and those that are left out: some five of all, and
    of each panel the largest of ours and of the published ones, of which sources speak most.
    """
    counts = sorted({*table["workers"]})
    if not counts:
        return [], []
    largest = table.groupby([*others, "published"], dropna=False)["workers"].max()
    shown = {*counts[:: -math.ceil(len(counts) / MOST)], *largest}
    return [count for count in counts if count in shown], [
        count for count in counts if count not in shown
    ]


def published(
    shown: pd.DataFrame, reference: pd.DataFrame | None, others: Sequence[str]
) -> pd.DataFrame:
    """Return rows of `config/references/aach2023-kernels.csv` in our columns: for each panel, those
    of its model and loader.

    A family there (`dali`) is put beside each of its loaders. The framework's name says that it is
    published.
    """
    if reference is None or not set(OURS) <= set(reference):
        return shown[:0]
    pairs = shown[[*others]].drop_duplicates()
    pairs = pairs.assign(theirs=pairs["loader"].map(registry.family))
    shares = pairs.merge(
        reference.rename(columns={"loader": "theirs"} | OURS), on=["model", "theirs"]
    )
    doubt = shares.get("doubt", pd.Series(None, shares.index))
    shares["framework"] = doubt.isna().map({True: "published", False: "in doubt"})
    return shares.assign(published=True).drop(
        columns=["theirs", "source", "doubt"], errors="ignore"
    )
