"""Table `epochs`: what each epoch of a run came to."""

from ddlbench.analysis import accuracy
from ddlbench.analysis.sheets import Sheet

SHEET = Sheet("One row per epoch of each successful run.", accuracy.EPOCHS, place=20, long=True)
