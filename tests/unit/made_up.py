"""Inputs that hypothesis makes up: JSON of any kind, and JSON with one thing in it that is wrong."""

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

# The same inputs come each time, so a test that passes here passes elsewhere.
FEW = settings(
    max_examples=60,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
TEXTS = st.text(max_size=40)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)


def spoilt(value: Any, data: st.DataObject) -> Any:
    """Return the value with one thing in it, at any depth, replaced or taken away."""
    if isinstance(value, dict) and value and data.draw(st.integers(0, 6)):
        key = data.draw(st.sampled_from(sorted(value)))
        if not data.draw(st.integers(0, 9)):
            return {k: v for k, v in value.items() if k != key}
        return value | {key: spoilt(value[key], data)}
    if isinstance(value, list) and value and data.draw(st.integers(0, 6)):
        place = data.draw(st.integers(0, len(value) - 1))
        return [*value[:place], spoilt(value[place], data), *value[place + 1 :]]
    return data.draw(JSON)
