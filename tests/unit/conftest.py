"""A plan that many unit tests look at."""

import pytest
from ddlbench.plan.runs import Plan, make_plan
from ddlbench.settings.study import load_study

from tests.specs import JUWELS


@pytest.fixture(scope="session")
def paper() -> Plan:
    """Study aach2023 on JUWELS Booster."""
    return make_plan(load_study("aach2023"), JUWELS)
