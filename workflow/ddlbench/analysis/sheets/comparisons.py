"""Table `comparisons`: frameworks, loaders or forms two by two."""

from ddlbench.analysis import comparisons
from ddlbench.analysis.price import FREE
from ddlbench.analysis.sheets import Sheet

SHEET = Sheet(
    "One row per pair of frameworks, loaders or forms, of equal settings.",
    comparisons.COLUMNS,
    place=60,
    of_study=lambda _, gathered: comparisons.rows(gathered.runs(), gathered.costs.tariff or FREE),
)
