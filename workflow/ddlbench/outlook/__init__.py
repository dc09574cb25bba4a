"""What follows from records that are there: predictions for more workers, and exports to other
programs.

`study.py` loads what predictions start from, `series.py` puts it into series. docs/prediction.md
explains them.
"""


class NoAnswerError(ValueError):
    """The error that the records do not suffice for an answer; the message is one line."""
