"""Which form of the data: of one loader that reads several."""

from ddlbench.answers import Answer, Choice, Given
from ddlbench.answers.questions import _sides

PLACE = 30
DECIDES = ("form",)


def answer(given: Given, choice: Choice) -> Answer | None:
    """Return the form to take, or None where only one was tried."""
    return _sides.answer(given, choice, "form")
