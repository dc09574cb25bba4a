"""What profiled runs spent their kernel time on: communication (all-reduce), input (loading, decoding, copies to the
device), computation (convolutions, matrix products), element-wise operations (with normalisation, pooling, loss and
optimiser) and other kernels. Kernels that run at the same time all count, so communication behind computation is in it.
Without a GPU the shares are of the operators' CPU time.
"""

import pandas as pd
from matplotlib.figure import Figure

from ddlbench.core import registry
from ddlbench.show.figures import Options, Tables, _bars, _style
from ddlbench.show.figures._tables import finished

PARTS = {
    "communication_percent": "communication",
    "input_percent": "input",
    "computation_percent": "computation",
    "elementwise_percent": "element-wise",
    "other_percent": "other",
}
TABLES = ("runs", "kernels")
PUBLISHED = ("allreduce_percent", "io_percent", "cudnn_percent")
OURS = dict(zip(PUBLISHED, PARTS, strict=False))  # by what a reference calls them
OTHERS = tuple(name for name in _bars.OTHERS if name != "global_batch")  # panels, where they tell bars apart


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """One row per profiled run: its shares [%]."""
    more = [column for column in OTHERS if column not in tables["kernels"]]
    return finished(tables, "kernels", more)[["run", *OTHERS, "framework", "workers", *PARTS]]


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """One panel per model, loader, ...; one bar per framework and worker count."""
    table = data.drop(columns="run").assign(published=False)
    table = pd.concat([table, published(table, options.reference)], ignore_index=True)
    figure, panels = _bars.stacks(table, PARTS, options, OTHERS, dots=False)  # all bars end at 100
    for axes, rows in panels:
        axes.set_xlim(0, 100)
        if rows["published"].any():
            figure.note("Paler bars are published shares, those in doubt marked; their loading may count other things.")
    shares = {label: data[part].median() for part, label in PARTS.items()} if panels else {}
    result = f"Middle shares of kernel time: {_style.ranked(shares, '%')}." if panels else ""
    return _bars.finished(figure, "kernel time [%]", options, PARTS, panels, result)


def published(shown: pd.DataFrame, reference: pd.DataFrame | None) -> pd.DataFrame:
    """Rows of `config/references/aach2023-kernels.csv` in our columns: for each panel, those of its model and loader.

    A family there (`dali`) is put beside each of its loaders. The framework's name is the source: authors and year.
    """
    if reference is None or not set(OURS) <= set(reference):
        return shown[:0]
    pairs = shown[[*OTHERS]].drop_duplicates()
    pairs = pairs.assign(theirs=pairs["loader"].map(registry.family))
    shares = pairs.merge(reference.rename(columns={"loader": "theirs"} | OURS), on=["model", "theirs"])
    shares["framework"] = shares["source"].str.split(",").str[0]
    if "doubt" in shares:
        shares["framework"] += shares.pop("doubt").notna().map({True: " (in doubt)", False: ""})
    return shares.assign(published=True).drop(columns=["theirs", "source"])
