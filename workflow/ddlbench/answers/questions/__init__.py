"""The questions of the first screen, a file each: how it is answered, in values. Its words are in
`templates/`.
"""

from typing import Any, Protocol

from ddlbench.answers import Answer, Choice, Given
from ddlbench.core import registry


class QuestionMember(Protocol):
    """The contract of a file of this room."""

    PLACE: int  # among the others on the page
    DECIDES: tuple[str, ...]  # the fields of `Choice` that its answer decides

    @staticmethod
    def answer(given: Given, choice: Choice) -> Answer | None:
        """Return the answer, or None where the study does not ask."""


def members() -> dict[str, Any]:
    """Return the questions by name, in their order on the page."""
    found = {name: registry.member("questions", name) for name in registry.members("questions")}
    return dict(sorted(found.items(), key=lambda item: int(item[1].PLACE)))
