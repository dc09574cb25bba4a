"""Where the time of a run of the tests went."""

from tests import times

DURATIONS = [
    ("tests/unit/test_a.py::test_x", 0.5),
    ("tests/slurm/test_b.py::test_y[1]", 30.0),
    ("tests/slurm/test_b.py::test_y[1]", 12.0),  # its set-up
    ("tests/slurm/test_b.py::test_y[2]", 2.0),
]


def test_seconds_of_a_tier_are_those_of_all_phases_of_its_tests() -> None:
    assert times.by_tier(DURATIONS) == {"slurm": (2, 44.0), "unit": (1, 0.5)}


def test_the_slowest_come_first_and_short_ones_not_at_all() -> None:
    assert times.slowest(DURATIONS) == [
        ("tests/slurm/test_b.py::test_y[1]", 42.0),
        ("tests/slurm/test_b.py::test_y[2]", 2.0),
    ]
    assert times.slowest(DURATIONS, count=1) == [("tests/slurm/test_b.py::test_y[1]", 42.0)]
