"""Table `learning_rates`: learning rates over the steps of a run."""

from ddlbench.analysis import accuracy
from ddlbench.analysis.sheets import Sheet

FILES = ("parquet",)  # Snakemake's process reads it without importing this file
SHEET = Sheet(
    f"Learning rates of successful runs: at most {accuracy.RATES_AN_EPOCH} steps per epoch, the"
    " first and the last among them. It has many rows and is written as parquet only.",
    accuracy.LEARNING_RATES,
    csv=False,
    place=30,
    long=True,
)
