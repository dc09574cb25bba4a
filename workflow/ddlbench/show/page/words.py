"""A sentence of the answer."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sentence:
    """One sentence, the question that it answers, how sure it is in words, the runs (ids) that it is made of, and
    audit rules that these break."""

    words: str
    sure: str
    runs: tuple[str, ...] = ()
    unfair: tuple[str, ...] = ()
    question: str = ""
