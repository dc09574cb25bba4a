"""Whether times, rates and energies of a run can be true, and how much of the run they rest on."""

from ddlbench.audit import SC15, Finding, Findings, Material, rule
from ddlbench.audit._compare import differing_frameworks, finding_per_row, ids


@rule(
    "note",
    "runs.train_s runs.epoch_s runs.epochs runs.steps runs.timed_steps",
    "train more epochs, or give each worker more images",
    f"{SC15}, rule 10",
)
def timed_share(material: Material) -> Findings:
    """Say which share of a training the speed rests on.

    A short run spends most of its time in warm-up; its throughput is that of a few steps.
    """
    runs, least = material.runs, 0.5
    share = runs["timed_steps"] / runs["steps"] * runs["epochs"] * runs["epoch_s"] / runs["train_s"]
    few = runs[share < least]
    if len(few):
        text = f"{share.min():.2f} of the training's time in the shortest case"
        yield Finding(
            ids(few),
            f"the speed of {len(few)} of {len(runs)} runs was measured over less than {least}:"
            f" {text}",
        )


@rule(
    "warning",
    "runs.steady runs.cut_steps runs.steps",
    "train more epochs",
    f"{SC15}, rules 5 and 10; White 1997, doi:10.1177/003754979706900601",
)
def steady(material: Material) -> Findings:
    """Check that step times became steady before they were counted.

    Where half of a run or more is warm-up, its rate says how the machine warms up. The rule for
    warm-up is MSER-5 (docs/statistics.md).
    """
    unsteady = ~material.runs["steady"].astype("bool")
    return finding_per_row(
        material.runs,
        unsteady,
        "{cut_steps} of {steps} steps were cut as warm-up, and the rest is not steady",
    )


@rule(
    "note",
    "runs.cut_steps runs.steps runs.framework runs.repeat",
    "look at step times of both: one side may have a longer warm-up, or late stalls; compare"
    " train_s, too",
    f"{SC15}, rules 5 and 9",
)
def same_cut(material: Material) -> Findings:
    """Check that frameworks that are compared count about the same part of their steps, within a
    quarter and chance.

    Each run is cut by itself, and the rate of one that counts less is of a later part of the
    training.
    """
    runs = material.runs
    runs = runs.assign(share=1 - runs["cut_steps"] / runs["steps"])
    return differing_frameworks(runs, "share", "the share of steps that count", 0.25)


@rule(
    "warning",
    "runs.clock_resolution_s runs.step_median_s",
    "give each step more images",
    f"{SC15}, section 4.2.1: a timer resolves a tenth of what is timed",
    {"clock_resolution_s": 1.0},
)
def fine_clock(material: Material) -> Findings:
    """Check that the clock of the steps resolves much less than a step takes: a tenth at most.

    Else parts of steps are multiples of the clock's tick.
    """
    runs = material.runs
    coarse = runs["clock_resolution_s"] > 0.1 * runs["step_median_s"]
    return finding_per_row(
        runs,
        coarse,
        "the clock's resolution is {clock_resolution_s} s; the median step takes {step_median_s} s",
    )


@rule(
    "note",
    "runs.stalls runs.timed_steps runs.step_median_s runs.step_max_s",
    "look at step_p95_s and step_max_s beside the median",
    f"{SC15}, rule 8",
)
def stalls(material: Material) -> Findings:
    """Check that stalls are few: single steps that took far longer than the others (outliers).

    They are shown, not dropped, and stay in all measures. Where they are more than one in a
    hundred, a mean says little, and the p95 says more.
    """
    runs = material.runs
    says = (
        "{stalls} of {timed_steps} steps stalled; the longest took {step_max_s} s, the median is"
        " {step_median_s} s"
    )
    return finding_per_row(runs, runs["stalls"] > 0.01 * runs["timed_steps"], says)


@rule(
    "warning",
    "runs.skipped_steps runs.steps",
    "lower the loss scale or use bf16",
    "Micikevicius et al. 2018, arXiv:1710.03740",
)
def skipped_steps(material: Material) -> Findings:
    """Check that steps whose update was left out are few: fp16 overflows now and then, not in one
    step of a hundred.

    Steps without an update are fast and teach nothing.
    """
    runs = material.runs
    return finding_per_row(
        runs,
        runs["skipped_steps"] > 0.01 * runs["steps"],
        "{skipped_steps} of {steps} steps had no update (overflow of fp16)",
    )


@rule(
    "note",
    "runs.resumes",
    "compare their times with those of runs that were not interrupted",
    f"{SC15}, rule 9",
)
def resumed_runs(material: Material) -> Findings:
    """Name runs that were interrupted: their caches were cold a second time."""
    return finding_per_row(
        material.runs, material.runs["resumes"] > 0, "went on from a checkpoint {resumes} times"
    )


@rule(
    "note",
    "runs.extrapolated runs.epochs runs.of_epochs",
    "say so with the number",
    "Hoefler 2018, number 10",
)
def extrapolated(material: Material) -> Findings:
    """Name times of whole trainings of which only some epochs were trained."""
    part = material.runs[material.runs["extrapolated"].astype("bool")]
    if len(part):
        low, high = part["epochs"].min(), part["of_epochs"].max()
        yield Finding(
            ids(part), f"{len(part)} of {len(material.runs)} runs trained {low} of {high} epochs"
        )


@rule(
    "warning",
    "runs.energy_j runs.train_s runs.device",
    "train for a minute at least where energy is compared",
    "Yang et al. 2023, arXiv:2312.02741",
)
def energy_window(material: Material) -> Findings:
    """Check that energy is measured over a window much longer than its counter's period.

    GPUs' sensors look at a part of the time only (a quarter on A100 and H100); in a short run
    chance decides.
    """
    # RAPL counts each millisecond; NVML some ten times a second, in parts.
    runs = material.runs.assign(least=material.runs["device"].map({"cpu": 1.0, "cuda": 10.0}))
    says = "energy was measured over {train_s} s on {device}; needed are at least {least} s"
    return finding_per_row(runs, runs["train_s"] < runs["least"], says)


@rule(
    "error",
    "runs.mfu",
    "check peak_tflops_per_worker of the machine's file",
    "Chowdhery et al. 2022, arXiv:2204.02311, section 4.1; Hoefler 2018, number 7",
)
def impossible_utilisation(material: Material) -> Findings:
    """Check that a utilisation is above 0 and at most 1, and counts the model's operations only.

    Above 1, a peak is wrong, or operations are counted that the model does not need
    (recomputation).
    """
    bad = ~material.runs["mfu"].between(0, 1, "right")
    return finding_per_row(material.runs, bad, "utilisation {mfu}; allowed: above 0, at most 1")
