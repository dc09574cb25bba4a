"""Records: what failed, what was refused, and others' logs that disagree."""

from collections import Counter

from ddlbench.analysis.failures import of_runs
from ddlbench.analysis.together import ended_well
from ddlbench.audit import MLCOMMONS, Finding, Findings, Material, rule
from ddlbench.audit._compare import finding_per_row, groups, ids
from ddlbench.records import BELIEVED

LEAST_TOP1 = 0.749  # MLPerf's target of ResNet-50 in its first round; 0.759 since the second


@rule(
    "warning",
    "failures.run",
    "read why: ddlbench failures; then start the workflow again",
    f"{MLCOMMONS}, Benchmark Results (non-converging runs)",
)
def failed_runs(material: Material) -> Findings:
    """Count runs that failed, so that they are not hidden.

    To show only the runs that ended well is to show the lucky ones. Jobs of inference are not
    counted here: their table is made of all of them, or not at all.
    """
    failures = material["failures"]
    if "rule" in failures:
        failures = of_runs(failures)
    if len(failures):
        causes = Counter(failures["cause"].astype("str")) if "cause" in failures else Counter()
        text = ", ".join(f"{count} times {cause}" for cause, count in causes.most_common())
        done = len(material.runs) if "runs" in material.tables else 0
        yield Finding(ids(failures), f"{len(failures)} runs failed, {done} succeeded: {text}")


@rule("warning", "refused.run", "follow the advice in each finding", "ddlbench/records/_sound.py")
def refused_records(material: Material) -> Findings:
    """Name records that cannot be true; they are in no table and no figure."""
    return finding_per_row(
        material["refused"], material["refused"]["run"].notna(), "{file}: {what}; {what_to_do}"
    )


@rule(
    "warning",
    "runs.reading runs.reading_proved",
    "let the program print its samples, its rate or the size of an epoch, say samples_per_epoch in"
    " its file, or use the recorder",
    "seen in public programs: epochs read as steps, samples of one rank as those of all",
)
def proved_readings(material: Material) -> Findings:
    """Check that what was read of a program's output agrees with something else: its own rate, a
    count of samples, the size of an epoch.

    Otherwise its rates may be those of another unit, by any factor.
    """
    runs = material.runs
    yield from finding_per_row(
        runs,
        ~runs["reading_proved"].astype("bool"),
        "{reading}: nothing confirms its steps and samples",
    )


@rule(
    "warning",
    "runs.pauses_known runs.throughput_images_per_s",
    "let the program print a line when it validates or writes a checkpoint, and say it in a pattern"
    " with (?P<pause>...); or use the recorder",
    "seen in public programs: validations counted as training; slow steps of a busy machine counted"
    " as pauses",
    also=("with_pauses_per_s",),
)
def pauses_known(material: Material) -> Findings:
    """Check that it is known what of a program's time was training.

    Where it prints nothing of its validations and checkpoints, only the length of the time between
    two lines shows them, and a busy machine makes long times of training, too.
    """
    runs = material.runs
    if "with_pauses_per_s" not in runs:
        runs = runs.assign(with_pauses_per_s=float("nan"))
    known = runs["pauses_known"].astype("bool")
    none = runs["with_pauses_per_s"].isna()
    yield from finding_per_row(
        runs,
        ~known & ~none,
        "the rate is {throughput_images_per_s} per s while it trains, {with_pauses_per_s} with what"
        " counts as pauses for its length alone",
    )
    yield from finding_per_row(
        runs,
        ~known & none,
        "the rate of {throughput_images_per_s} per s has outliers in it that may be pauses",
    )


@rule(
    "error",
    "runs.printed_samples_per_s runs.clock_samples_per_s runs.printed_rate_agrees",
    "state what its rate is of (set rate_of: worker, or leave the group out); if it is of all"
    " samples, let the pattern's group count what the program counts",
    "seen in public programs: rates of one rank, of steps, or without the wait for data",
)
def printed_rates(material: Material) -> Findings:
    """Check that a rate that a program prints is the one of its steps and the clock.

    Tables and figures have the rate of the clock. Where the program prints another one, one of the
    two counts something else.
    """
    runs = material.runs
    runs = runs.assign(ratio=runs["printed_samples_per_s"] / runs["clock_samples_per_s"])
    says = (
        "it prints {printed_samples_per_s} per s, its timestamps give {clock_samples_per_s}:"
        " {ratio} times as many"
    )
    return finding_per_row(runs, ~runs["printed_rate_agrees"].astype("bool"), says)


@rule(
    "error",
    "submissions.said_images_per_s",
    "tables have the rate by the log's timestamps; ask the submitter what the log's rate is of",
    "seen in published logs: rates of one rank, of steps, or with other samples",
)
def said_rates(material: Material) -> Findings:
    """Check that a rate that another's log says is the one that its samples, epochs and clocks
    give.

    Tables and figures have the rate of the clocks. Where a log has no marks of time to check its
    rate with, tables have what it says, and this rule says so.
    """
    logs = material["submissions"]
    logs = logs.assign(ratio=logs["said_images_per_s"] / logs["clock_images_per_s"])
    says = (
        "the log says {said_images_per_s} images/s, its {clocks} give {clock_images_per_s}: {ratio}"
        " times as many"
    )
    # The log's rate is a median of epochs or of steps, the clocks' a mean.
    yield from finding_per_row(logs, (logs["ratio"] - 1).abs() > 0.1, says)
    unchecked = ended_well(logs) & logs["clock_images_per_s"].isna()
    says = (
        "the log says {said_images_per_s} images/s, and no times of epochs, blocks or evaluations"
        " to check them with"
    )
    yield from finding_per_row(logs, unchecked, says)


@rule(
    "error",
    "submissions.clock_images_per_s submissions.run_images_per_s",
    "tables have no rate of it; ask the submitter what its marks of time, or its counts of epochs,"
    " are of",
    "seen in published logs: marks written when work is queued, epochs counted several times per"
    " block",
)
def rate_of_the_run(material: Material) -> Findings:
    """Check that the rate of another's log fits what the whole run took: samples seen, by the time
    from `run_start` to `run_stop`.

    The run also starts up and evaluates, so a rate may lie above by half. Beyond, marks do not time
    the training, or count something else: the record has no rate, and is in no figure of rates.
    """
    logs = material["submissions"]
    rate = logs["clock_images_per_s"]
    if "said_images_per_s" in logs:
        rate = rate.fillna(logs["said_images_per_s"])
    logs = logs.assign(rate=rate, ratio=rate / logs["run_images_per_s"])
    says = (
        "{rate} samples/s by its marks, {run_images_per_s} by the time of the run: {ratio} times as"
        " many"
    )
    yield from finding_per_row(
        logs, ended_well(logs) & logs["ratio"].notna() & ~logs["ratio"].between(*BELIEVED), says
    )


@rule(
    "error",
    "submissions.status submissions.benchmark",
    "ask the submitter; do not use its time to accuracy",
    f"{MLCOMMONS}, Benchmark Results: a run ends when it reaches the target",
)
def ended_as_said(material: Material) -> Findings:
    """Check that a log that says success says so on all ranks, and that its accuracy reached the
    benchmark's target (`resnet`).
    """
    logs = material["submissions"]
    several = logs["statuses"].fillna("").str.contains("; ")
    yield from finding_per_row(logs, several, "ranks end with different statuses: {statuses}")
    resnet = ended_well(logs) & (logs["benchmark"] == "resnet")
    yield from finding_per_row(
        logs,
        resnet & (logs["reached"] < LEAST_TOP1),
        "ended with success; its best accuracy is {reached}",
    )
    yield from finding_per_row(
        logs, resnet & logs["reached"].isna(), "ended with success, but states no accuracy"
    )


@rule(
    "warning",
    "submissions.benchmark submissions.division submissions.system",
    "ask for the results that are missing: the best three of five are a biased sample",
    f"{MLCOMMONS}, Benchmark Results (5 runs of ResNet)",
)
def five_results(material: Material) -> Findings:
    """Check that a closed submission of ResNet has five results.

    The best three of them have another median and less spread.
    """
    logs = material["submissions"]
    logs = logs[(logs["benchmark"] == "resnet") & (logs["division"] == "closed")]
    for _, rows in groups(logs, ["org", "system"]):
        if len(rows) < 5:
            yield Finding(ids(rows), f"{len(rows)} of 5 results are there")


@rule(
    "warning",
    "submissions.said_samples submissions.samples",
    "read rates from the tables, which count the benchmark's data set",
    "seen in published logs (retinanet: steps)",
)
def said_samples(material: Material) -> Findings:
    """Check that the samples of an epoch that another's log says are those of the benchmark's data
    set, where the rules fix it.

    Some writers log the steps of an epoch there. Rates would be wrong by a factor of the batch;
    tables count the data set.
    """
    logs = material["submissions"]
    # What is left out at an epoch's end, or padded, is less than a percent.
    bad = (logs["said_samples"] / logs["samples"] - 1).abs() > 0.01
    return finding_per_row(logs, bad, "train_samples is {said_samples}; {benchmark} has {samples}")


@rule(
    "warning",
    "submissions.clock_back_s",
    "find out which clock was set, and do not use times of this log",
    f"{MLCOMMONS}: results are differences of the log's times",
)
def clocks_back(material: Material) -> Findings:
    """Check that times in another's log do not go back while it trains.

    Ranks' lines may come in another order; here the times of one epoch after the other are
    compared. Where they go back by more than 1 s, and 1 % of the training, its time is in no table;
    rates are of the epochs whose times can be true.
    """
    logs = material["submissions"]
    bad = logs["clock_back_s"] > 0.1  # clocks of several nodes differ by less
    return finding_per_row(logs, bad, "timestamps of successive marks go back by {clock_back_s} s")
