"""Whose PyTorch is used: the environment's own, or the site's."""

import sys
from pathlib import Path

import pytest
from ddlbench.core import site_torch
from ddlbench.preflight import scout


def test_an_environment_names_the_folder_of_the_sites_pytorch(tmp_path: Path) -> None:
    assert site_torch.folder(tmp_path) is None
    (tmp_path / site_torch.NOTE).write_text(f"{tmp_path}/module\n")
    assert site_torch.folder(tmp_path) == (tmp_path / "module").resolve()


def test_the_origin_of_pytorch_is_this_environment_or_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert site_torch.origin() == site_torch.OWN
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert site_torch.origin() == str(tmp_path.resolve())


def test_the_preflight_complains_of_another_pytorch_unless_it_is_the_sites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    (complaint,) = scout.outside_environment(["torch"])
    assert str(tmp_path) in complaint
    monkeypatch.setattr(site_torch, "folder", lambda: tmp_path.resolve())
    assert scout.outside_environment(["torch"]) == []
