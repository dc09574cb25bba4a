"""What lies ahead, by records that are there: predictions, a recommendation, the scaling section of an application.

`study.py` loads what all three start from. Each part has a `make`, which writes its files and returns the text for
people. docs/prediction.md explains all of them.
"""


class NoAnswerError(ValueError):
    """The records do not suffice for an answer; the message is one line."""
