"""What tests ask of messages: facts are whole words and numbers, and an error is one line."""

import pytest

from tests.facts import missing, refuses


@pytest.mark.parametrize(
    ("text", "fact", "named"),
    [
        ("runs.all: 12 is not allowed", 12, True),
        ("runs.all: 12 is not allowed", 1, False),
        ("took 1.5 s", 1, False),
        ("took 1.5 s", 5, False),
        ("at most 5.", 5, True),
        ("config/a.yaml: workers", "a.yaml: ", True),
        ("config/a.yaml: workers", "worker", False),
        ("machines/mine.yaml", "mine", True),
        ("train-2: [ddp]", "[ddp]", True),
        ("None", None, True),
    ],
)
def test_a_fact_is_whole(text: str, fact: object, named: bool) -> None:
    assert missing(text, fact) == ([] if named else [fact])


def test_an_error_is_one_line_that_names_its_facts() -> None:
    with refuses(ValueError, "a.yaml", 3) as error:
        raise ValueError("a.yaml: 3")
    assert error.type is ValueError
    with pytest.raises(AssertionError), refuses(ValueError, 4):
        raise ValueError("a.yaml: 3")
    with pytest.raises(AssertionError), refuses(ValueError, 3):
        raise ValueError("a.yaml\n3")
    with pytest.raises(pytest.fail.Exception), refuses(ValueError, 3):
        pass
