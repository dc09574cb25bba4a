"""What lies ahead, from records that are there: a recommendation, what if, and the scaling section of an application.

`study.py` loads what all three start from. Each part has a `make`, which writes its files and returns the text for
people. The predictions of a study are `analysis/prediction/_table.py`. docs/prediction.md explains all of them.
"""


class NoAnswerError(ValueError):
    """The records do not suffice for an answer; the message is one line."""
