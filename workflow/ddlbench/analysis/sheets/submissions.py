"""Table `submissions`: what records of others say beside what their clocks say. `records/mlperf.py`
makes the rows.
"""

from ddlbench.analysis.sheets import Sheet
from ddlbench.core.columns import Column

COLUMNS = (
    Column("run", "str", "The run."),
    Column("org", "str", "Who submitted it: the folder's name."),
    Column("division", "str", "`closed` or `open`: whether the recipe had to be the reference's."),
    Column("benchmark", "str", "The benchmark."),
    Column("system", "str", "The system: the folder's name."),
    Column("accelerator", "str", "The accelerator, as the system's file names it."),
    Column("framework", "str", "The framework, as the system's file names it."),
    Column("file", "str", "The log."),
    Column("status", "str", "What `run_stop` says; null without one."),
    Column("said_images_per_s", "float64", "Median of the rates in the log.", "images/s"),
    Column(
        "clock_images_per_s",
        "float64",
        "Samples of its intervals divided by their times.",
        "images/s",
    ),
    Column("clocks", "str", "Which marks those times are of: `epochs`, `blocks` or `evaluations`."),
    Column(
        "run_images_per_s",
        "float64",
        "Samples seen by the time from `run_start` to `run_stop`.",
        "images/s",
    ),
    Column("reached", "float64", "The best accuracy in the log."),
    Column("statuses", "str", "What the `run_stop` of all ranks say."),
    Column("said_samples", "float64", "`train_samples` of the log."),
    Column(
        "samples",
        "float64",
        "Samples of an epoch that are counted: the benchmark's, where its size is fixed.",
    ),
    Column("seen_samples", "float64", "Samples that were trained until the last evaluation."),
    Column("clock_back_s", "float64", "How far times of successive marks go back, at most.", "s"),
    Column("lines", "int64", "MLPerf lines in the log."),
    Column("damaged_lines", "int64", "Those that cannot be read."),
)
SHEET = Sheet(
    "One row per record of others: what it says beside what its clocks say.", COLUMNS, place=85
)
