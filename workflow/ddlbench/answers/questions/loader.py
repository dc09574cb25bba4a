"""Which loader: the fastest over all settings; one that loads nothing is the ceiling."""

from ddlbench.answers import Answer, Choice, Given
from ddlbench.answers.questions import _sides

PLACE = 20
DECIDES = ("loader",)


def answer(given: Given, choice: Choice) -> Answer | None:
    """Return the loader to take, or None where only one was tried."""
    return _sides.answer(given, choice, "loader")
