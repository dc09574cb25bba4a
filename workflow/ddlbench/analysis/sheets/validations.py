"""Table `validations`: what a user's program said of each of its validations.

Figure `time-to-accuracy` finds in it the first one that reached the target.
"""

from ddlbench.analysis import accuracy
from ddlbench.analysis.sheets import Sheet

SHEET = Sheet(
    "One row per validation of each successful run of a program. Our own trainings validate after"
    " each epoch: table `epochs`.",
    accuracy.VALIDATIONS,
    place=21,
    of_record=accuracy.validations,
)
