"""Which framework: the fastest over all settings that loses no accuracy."""

from ddlbench.answers import Answer, Choice, Given
from ddlbench.answers.questions import _sides

PLACE = 10
DECIDES = ("framework",)


def answer(given: Given, choice: Choice) -> Answer | None:
    """Return the framework to take, or None where only one was tried."""
    return _sides.answer(given, choice, "framework")
