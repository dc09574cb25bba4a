"""A token in a machine's file reaches the ranks, and nothing that is kept or that other users can
read.

Its ranks and scouts looked at what processes show while the mini study was made: LOOK in
conftest.py.
"""

import hashlib
from pathlib import Path

from ddlbench.plan.launch import HIDDEN

from tests.workflow.conftest import TOKEN


def test_a_token_is_only_seen_by_the_ranks(finished_once: Path) -> None:
    said = (finished_once / "said").read_text()
    assert f"HF_TOKEN={HIDDEN}" in said
    assert TOKEN not in said
    looked = [path.read_text() for path in (finished_once / "seen").iterdir()]
    assert (
        sum(text.startswith(hashlib.sha256(TOKEN.encode()).hexdigest()) for text in looked) >= 4
    )  # runs and scouts
    assert not [text for text in looked if "shown" in text]
    files = [
        path
        for top in ("results", ".snakemake")
        for path in (finished_once / top).rglob("*")
        if path.is_file()
    ]
    assert any(
        path.name == "run.mllog" and f"HF_TOKEN={HIDDEN}" in path.read_text() for path in files
    )
    assert [str(path) for path in files if TOKEN.encode() in path.read_bytes()] == []
