"""What a text must name: tests ask a message for files, keys, values and numbers, so that it may be
worded anew.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


def missing(text: object, *facts: object) -> list[object]:
    """Return the facts that a text does not name. Each is a whole word, so 1 is not in 12 or
    1.5.
    """
    return [fact for fact in facts if not re.search(_whole(fact), str(text))]


@contextmanager
def refuses(
    error: type[BaseException], *facts: object
) -> Iterator[pytest.ExceptionInfo[BaseException]]:
    """Hold the code within to an error of this type, whose one line names the facts."""
    with pytest.raises(error) as raised:
        yield raised
    text = str(raised.value)
    assert len(text.splitlines()) == 1
    assert missing(text, *facts) == []


def _whole(fact: object) -> str:
    """Return a pattern of a fact that is not a part of a longer word or number."""
    text = str(fact)
    before = r"(?<![\w.])" if text[0].isdigit() else r"(?<!\w)" if text[0].isalpha() else ""
    after = r"(?!\w|\.\d)" if text[-1].isdigit() else r"(?!\w)" if text[-1].isalpha() else ""
    return before + re.escape(text) + after
