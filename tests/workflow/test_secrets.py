"""A token in a machine's file reaches the ranks, and nothing that is kept or that other users can read."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ddlbench.plan.launch import HIDDEN

from tests.workflow.conftest import edit, mini

TOKEN = "hf_tHiSisAs3cret"
# In each rank and each scout: note that the token is here, and which processes show it to everybody.
LOOK = """
import hashlib, os
from pathlib import Path
token = os.environ.get("HF_TOKEN", "")
if token:
    shown = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if token.encode() in path.read_bytes():
                shown.append(path.read_bytes())
        except OSError:
            pass
    text = hashlib.sha256(token.encode()).hexdigest() + (f" shown by {{shown}}" if shown else "")
    Path({folder!r}, str(os.getpid())).write_text(text)
"""


def test_a_token_is_only_seen_by_the_ranks(fresh: Path, tmp_path: Path) -> None:
    edit(fresh / "config/machines/mini.yaml", environment={"HF_TOKEN": TOKEN, "GLOO_SOCKET_IFNAME": "lo"})
    (tmp_path / "seen").mkdir()
    for package in ("rank", "preflight"):
        with (fresh / f"workflow/ddlbench/{package}/__init__.py").open("a") as file:
            file.write(LOOK.format(folder=str(tmp_path / "seen")))
    done = mini(fresh, "--printshellcmds")
    assert done.returncode == 0, done.stdout
    assert f"HF_TOKEN={HIDDEN}" in done.stdout
    assert TOKEN not in done.stdout
    looked = [path.read_text() for path in (tmp_path / "seen").iterdir()]
    assert sum(text.startswith(hashlib.sha256(TOKEN.encode()).hexdigest()) for text in looked) >= 4  # runs and scouts
    assert not [text for text in looked if "shown" in text]
    files = [path for top in ("results", ".snakemake") for path in (fresh / top).rglob("*") if path.is_file()]
    assert any(path.name == "run.mllog" and f"HF_TOKEN={HIDDEN}" in path.read_text() for path in files)
    assert [str(path) for path in files if TOKEN.encode() in path.read_bytes()] == []
