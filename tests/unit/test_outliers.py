"""What is called slow among values that should be alike."""

import random

import pytest
from ddlbench.analysis.outliers import is_slow


def test_where_all_differ_much_a_tenth_is_nothing() -> None:
    """Three of the robust standard deviations of the others: 25 % below them is within what these
    values differ by.
    """
    values = [70.0, 85.0, 95.0, 100.0, 105.0, 115.0, 130.0]
    assert not is_slow(75.0, values)
    assert is_slow(20.0, values)
    assert not is_slow(75.0, [])
    assert is_slow(75.0, [100.0])


@pytest.mark.parametrize("hosts", [2, 4, 16, 64])
def test_false_alarms_are_rare_and_a_slow_one_is_not_missed(hosts: int) -> None:
    """Sound nodes of 2 % spread: of a hundred tries at most one may accuse any, and two may miss a
    slow one.
    """
    chance, accused, missed = random.Random(7 + hosts), 0, 0
    for _ in range(100):
        values = [chance.gauss(100, 2) for _ in range(hosts)]
        accused += any(
            is_slow(value, values[:n] + values[n + 1 :]) for n, value in enumerate(values)
        )
        missed += not is_slow(chance.gauss(80, 2), values[1:])
    assert accused <= 1 and missed <= 2
