"""Speed-ups, efficiencies and lines over numbers of workers: their bases, bounds and gaps."""

from __future__ import annotations

from itertools import pairwise

from ddlbench.analysis import together
from ddlbench.analysis.together import COMPARED, of_programs
from ddlbench.audit import SC15, TWELVE_WAYS, Finding, Findings, Material, rule
from ddlbench.audit._compare import finding_per_row, groups, ids, in_parentheses, side_of, timed

SIDE_BY_SIDE = (
    "seen in public programs: a Lightning Fabric, an ImageNet script and Horovod's benchmark, whose"
    " ranks each trained alone: speed-ups of 1.2 to 2.0"
)
RELATIVE = ("speed-up", "efficiency")


@rule(
    "warning",
    "numbers.base_images_per_s numbers.quantity",
    "state the baseline's share of the ceiling with the efficiency, and show throughput, too",
    f"{SC15}, rules 1 and 11; Aach et al. 2023, whose 4 GPUs make 616 to 667 images/s each where"
    " others make 2729 on the same machine",
)
def slow_base(material: Material) -> Findings:
    """Check that the baseline reaches at least half of what its hardware can: of the synthetic
    loader's rate.

    A slow baseline flatters every efficiency above it: what waits for data hides its communication.
    """
    numbers = material.numbers[material.numbers["quantity"].isin(RELATIVE)]
    for _, rows in groups(numbers, [*COMPARED, "batch_per_worker", "strong_batch", "ref_workers"]):
        ceiling = rows.loc[rows["loader"] == "synthetic", "base_images_per_s"].max()
        for _, slow in rows[rows["base_images_per_s"] < 0.5 * ceiling].groupby("base_images_per_s"):
            rate = float(slow["base_images_per_s"].iloc[0])
            share = f"a share of {rate / ceiling:.2f}"
            text = (
                f"the baseline reaches {rate:.0f} images/s, the synthetic loader {ceiling:.0f}:"
                f" {share}"
            )
            yield Finding(ids(slow), text)


@rule(
    "warning",
    "numbers.quantity numbers.value numbers.framework numbers.loader",
    "compare throughput, or efficiencies over the best baseline",
    "Hoefler and Belli, SC'15, rules 1 and 4",
)
def common_base(material: Material) -> Findings:
    """Check that, where efficiencies rank two frameworks or loaders, throughput ranks them alike.

    Each efficiency has its own baseline. The slower one at every number of workers can have the
    higher efficiency. Both differences are beyond the intervals of the two; of single runs nobody
    can tell.
    """
    numbers, more = material.numbers, 1.05
    both = numbers[numbers["quantity"].isin(["efficiency", "throughput"])]
    for cell, rows in groups(both, [*COMPARED, "batch_per_worker", "global_batch", "workers"]):
        efficiency, rate = (rows[rows["quantity"] == q] for q in ("efficiency", "throughput"))
        table = efficiency.merge(rate, on=["framework", "loader"], suffixes=("", "_rate"))
        if len(table) < 2 or table.duplicated(["framework", "loader"]).any():
            continue
        best, fastest = (table.iloc[int(table[name].argmax())] for name in ("value", "value_rate"))
        is_more = (
            best["value"] > more * fastest["value"]
            and fastest["value_rate"] > more * best["value_rate"]
        )
        if is_more and best["low"] > fastest["high"] and fastest["low_rate"] > best["high_rate"]:
            sample = together.sample(material.runs)
            parts = [
                f"{side_of(row['framework'], row['loader'])}: efficiency {row['value']:.3f},"
                f" {row['value_rate']:.6g} {sample}/s"
                for row in (best, fastest)
            ]
            named = (str(best["row"]), str(fastest["row"]))
            yield Finding(
                named, f"the more efficient is slower{in_parentheses(cell)}: {'; '.join(parts)}"
            )


@rule(
    "warning",
    "numbers.quantity numbers.value",
    "repeat the baseline runs, and explain why the speed-up is superlinear",
    f"{SC15}, rules 1 and 11",
)
def superlinear(material: Material) -> Findings:
    """Name efficiencies above 1: each is to be explained, or its baseline measured again.

    More workers have more cache and memory; most often the baseline was slow that day. Of several
    repeats the lower end of the interval counts.
    """
    numbers = material.numbers
    least = numbers["low"].fillna(numbers["value"])
    bad = (numbers["quantity"] == "efficiency") & (least > 1.05)
    return finding_per_row(
        numbers, bad, "efficiency {value} at {workers} workers; at most 1 is ideal"
    )


@rule(
    "note",
    "numbers.quantity numbers.workers",
    "measure a number of workers in between, or draw points without a line",
    f"{SC15}, rule 12",
)
def sparse_lines(material: Material) -> Findings:
    """Check that a line over numbers of workers has at least one point at every fourfold.

    Between two far points nothing was measured; a line there is a guess.
    """
    numbers = material.numbers[material.numbers["quantity"].isin(["efficiency", "throughput"])]
    for _, rows in groups(numbers, ["series", "quantity"]):
        counts = sorted(rows["workers"].dropna().unique())
        gap = next(((low, high) for low, high in pairwise(counts) if high > 4 * low), None)
        if gap:
            yield Finding(
                ids(rows), f"nothing was measured between {gap[0]:g} and {gap[1]:g} workers"
            )


@rule(
    "note",
    "runs.throughput_images_per_s runs.workers runs.loader",
    "run the missing points, or say why they are missing",
    f"{SC15}, rule 2; Aach et al. 2023, Table 2: the native loader ends at 512 of 1024 GPUs",
)
def missing_points(material: Material) -> Findings:
    """Check that frameworks and loaders that are compared were measured on the same numbers of
    workers, or that it is said why not.

    A line that ends early may have ended because it fell.
    """
    for what, rows in groups(timed(material.runs), COMPARED):
        everywhere = set(rows["workers"])
        for name, line in groups(rows, ["framework", "loader"]):
            missing = sorted(everywhere - set(line["workers"]))
            if missing:
                text = f"{name} has nothing at {', '.join(map(str, missing))} workers{in_parentheses(what)}"
                yield Finding(ids(line), f"{text}; others have")


@rule(
    "note",
    "runs.throughput_images_per_s runs.loader",
    "add loader synthetic to the study, or peak_tflops_per_worker to the machine's file",
    f"{SC15}, rule 11",
)
def no_upper_bound(material: Material) -> Findings:
    """Check that speeds are shown beside what bounds them: the synthetic loader, or the hardware's
    peak.

    Without it nobody can tell a good number from a bad one.
    """
    for what, rows in groups(timed(material.runs), COMPARED):
        if of_programs(rows).all():  # nobody can take the data out of a program
            continue
        if "synthetic" not in set(rows["loader"]) and (
            "mfu" not in rows or rows["mfu"].isna().all()
        ):
            yield Finding(
                ids(rows),
                f"no synthetic loader and no utilisation{in_parentheses(what)} among {len(rows)} runs",
            )


@rule(
    "warning",
    "runs.throughput_images_per_s runs.loader",
    "add a loader that reads data",
    f"{TWELVE_WAYS}, number 6",
)
def only_synthetic(material: Material) -> Findings:
    """Check that speeds are measured with pictures that are read and decoded, not with the
    synthetic loader alone.

    Without input, a training scales better than any that learns.
    """
    for what, rows in groups(timed(material.runs), COMPARED):
        if set(rows["loader"]) == {"synthetic"}:
            yield Finding(
                ids(rows),
                f"all {len(rows)} runs have the synthetic loader{in_parentheses(what)}; none reads pictures",
            )


@rule(
    "error",
    "runs.ranks_together runs.ranks_evidence",
    "have the program join the ranks that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT name, or"
    " say ranks: own, and look at it: ddlbench new program --try --workers 2",
    SIDE_BY_SIDE,
)
def ranks_apart(material: Material) -> Findings:
    """Check that ranks of a program train together.

    Ranks that train each for itself, side by side, scale perfectly, and train nothing together.
    They are found where one is ahead of another by more than a step, which an average of gradients
    does not allow, where their losses are equal to the last digit though they never met, and where
    the program says that it is one rank.
    """
    runs = material.runs
    return finding_per_row(
        runs, runs["ranks_together"] == "no", "{workers} workers, and {ranks_evidence}"
    )


@rule(
    "warning",
    "runs.ranks_together runs.ranks_evidence",
    "print the number of ranks that train together, with a pattern's group (?P<workers>...), use"
    " the recorder, or let each rank print its own loss",
    SIDE_BY_SIDE,
)
def ranks_confirmed(material: Material) -> Findings:
    """Check that something confirms that the ranks of a program trained together: all joined the
    rendezvous at MASTER_PORT, or the program, or torch.distributed through the recorder, says how
    many they are.

    Losses that are equal to the last digit on ranks that met may be averages over ranks, or the
    same training on each.
    """
    runs = material.runs
    return finding_per_row(
        runs, runs["ranks_together"] == "unconfirmed", "{workers} workers: {ranks_evidence}"
    )
