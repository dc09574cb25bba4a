"""Table `kernels`: what the kernels of a profiled run did."""

from ddlbench.analysis import kernels
from ddlbench.analysis.sheets import Sheet

SHEET = Sheet("One row per profiled run: shares of its kernel time.", kernels.COLUMNS, place=70)
