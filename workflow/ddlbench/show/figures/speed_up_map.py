"""What a framework saves, setting by setting: the time of plain PyTorch (DDP) over that of the framework, on the same
workers, as medians over repeats; white is 1. The colour bar says which time. Each row is a model, those with the fewest
floating-point operations per image above; each column is a data set and a recipe. Bold numbers differ from 1 by a
verdict; small ones are their 95 % interval.
"""

import pandas as pd
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from ddlbench.analysis.claims import CONTRADICTED, SUPPORTED, UNDECIDED, factor
from ddlbench.analysis.scaling import TIMES
from ddlbench.analysis.statistics import ratio
from ddlbench.show.figures import Options, Tables, _map, _scaling

TABLES = ("runs",)
PUBLISHED = ("framework-speed-up",)
SETTINGS = ("basis",)


def data(tables: Tables, options: Options) -> pd.DataFrame:
    """One row per setting and framework: the speed-up as `value`, with its interval."""
    return _map.data(tables, TIMES[options.basis], lambda theirs, base: ratio(base, theirs))


def draw(data: pd.DataFrame, options: Options) -> Figure:
    """One panel per framework and worker count."""
    most = max([1.25, *data["value"], *(1 / data["value"])])
    scale = LogNorm(1 / most, most)  # white is in the middle
    label = f"time of {', '.join(sorted(set(data['base'])))} over time of the other\n({_scaling.OF[options.basis]})"
    published = options.reference if options.device == "cuda" else None  # which is of GPUs
    what = f"Speed-up over {', '.join(sorted(set(data['base'])))}"
    return _map.draw(data, options, scale, "{:.2f}", label, what, verdicts(data, published))


def verdicts(data: pd.DataFrame, reference: pd.DataFrame | None) -> list[str]:
    """One line per published speed-up of a framework: what was said, what these runs have, and the verdict on it.

    `analysis/claims.py` judges: all settings must fit a number that was given; one that reaches it is enough for what
    was reached `up-to`.
    """
    lines = []
    given = [] if reference is None else reference[reference["quantity"].isin(PUBLISHED)].to_dict("records")
    for row in given:
        here = data[data["model"].isin(str(row["model"]).split("|")) & (data["framework"] == row["framework"])]
        if here.empty:
            continue
        value, most = float(row["value"]), row["relation"] == "up-to"
        ends = [(None, None) if end.isna().any() else tuple(end) for _, end in here[["low", "high"]].iterrows()]
        tries = max(1, sum(low is not None for low, _ in ends))  # single runs have no interval, and decide nothing
        pairs = zip(ends, here["repeats"], strict=True)
        each = [factor(low, high, int(n), value, tries, most) for (low, high), n in pairs]
        order = [SUPPORTED, UNDECIDED, CONTRADICTED] if most else [CONTRADICTED, UNDECIDED, SUPPORTED]
        verdict = next(verdict for verdict in order if verdict in each)
        names = ", ".join(here.drop_duplicates("model").sort_values("flops_per_image")["model"])
        claim = f"{row['source'].split(',')[0]}: {'up to' if most else 'about'} {value:g} for {row['task']} tasks"
        lines.append(f"{claim}. Here {here['value'].min():.2f} to {here['value'].max():.2f} ({names}): {verdict}.")
    return lines
