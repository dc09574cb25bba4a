"""Can the numbers of a log that others published be true? What all records must satisfy is in
`_sound.py`.
"""

from pathlib import Path

import numpy as np

from ddlbench.analysis.refusals import RefusedError
from ddlbench.records._mllog import ACCURACY, MOST_EPOCHS, Log, plain

# What a number of another's log may be. `time_ms` lies between 2001 and 2286; 0 is what some write
# for no time.
TIMES_MS = (1e12, 1e13)
MOST = 1e12  # samples, of a batch or of a training, or epochs
FIX = "fix the file, or leave it out of records.folder"


def check(
    place: Path,
    log: Log,
    fixed: int | None = None,
    *,
    is_share: bool = False,
    in_samples: bool = False,
) -> None:
    """Check that the numbers of another's log can be true: otherwise they would make other numbers
    wrong, or no table could hold them. `fixed` is how many samples an epoch has, where the rules
    fix it; `is_share`: accuracies are from 0 to 1; `in_samples`: counters of epochs may hold
    samples.
    """
    for key, marks in log.marks.items():
        rows = np.frombuffer(marks.rows).reshape(-1, 3)
        most = MOST
        if fixed and not marks.in_samples:
            most = MOST_EPOCHS * (fixed if in_samples else 1)
        share = key == ACCURACY and is_share
        for name, numbers, good in (
            (
                "time_ms",
                rows[:, 0],
                (rows[:, 0] >= TIMES_MS[0]) & (rows[:, 0] < TIMES_MS[1]) | (rows[:, 0] == 0),
            ),
            ("how much was trained", rows[:, 1], (rows[:, 1] >= 0) & (rows[:, 1] <= most)),
            (
                "epoch_count",
                rows[:, 2],
                (key != "block_start") | (rows[:, 2] >= 0) & (rows[:, 2] <= MOST),
            ),
            ("accuracy", rows[:, 2], (not share) | (rows[:, 2] >= 0) & (rows[:, 2] <= 1)),
        ):
            bad = ~np.isnan(numbers) & ~good
            if bad.any():
                raise RefusedError(place, f"{key}: {name} cannot be {numbers[bad][0]:g}", FIX)
    for key, most in (("global_batch_size", fixed or MOST), ("train_samples", MOST)):
        number = plain(log.keys.get(key, 1))
        if not (1 <= number <= most and number == int(number)):
            complaint = (
                f"{key} is not a whole number from 1 to {most:.0f}: {str(log.keys[key])[:40]!r}"
            )
            raise RefusedError(place, complaint, FIX)
