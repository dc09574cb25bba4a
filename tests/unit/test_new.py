"""Files to begin with: they are what the cluster says, can be loaded, and take nothing's place."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from ddlbench import new
from ddlbench.plan.runs import make_plan
from ddlbench.settings.config import ConfigError
from ddlbench.settings.machine import load_machine
from ddlbench.settings.study import load_study

from tests.conftest import ROOT
from tests.specs import LAPTOP

SINFO = "login|2|30:00|8|(null)\nbooster|900|1-00:00:00|96+|gpu:a100:4(S:0-3)\ndevel|4|02:00:00|96|gpu:a100:4\n"
IP = "lo UNKNOWN 127.0.0.1/8\nib0@x UP 10.0.0.1/16\neth1 DOWN\neth0 UP 10.1.0.1/16 fe80::1/64\n"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    for folder in ("machines", "studies"):
        (tmp_path / "config" / folder).mkdir(parents=True)
    (tmp_path / "config/recipes").symlink_to(ROOT / "config/recipes")
    return tmp_path / "config"


def answers(monkeypatch: pytest.MonkeyPatch, sinfo: str) -> None:
    monkeypatch.setattr(new, "_ask", lambda command: {"sinfo": sinfo, "ip": IP}[command[0]])


def test_a_machine_file_is_what_the_cluster_says(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, SINFO)
    path = new.machine("mine", config)
    made = load_machine("mine", config / "machines")
    assert (made.device, made.device_name, made.nodes, made.workers_per_node) == ("cuda", "a100", 900, 4)
    assert made.cores_per_worker == 24
    assert [(p.name, p.max_nodes, p.max_minutes) for p in made.partitions] == [
        ("booster", 900, 1440),
        ("devel", 4, 120),
    ]
    text = path.read_text()
    assert "NCCL_SOCKET_IFNAME: ib0 " in text and "eth0" in text and "eth1" not in text
    assert text.count("SET") > 5
    with pytest.raises(ConfigError, match="is there already"):
        new.machine("mine", config)
    assert path.read_text() == text


def test_a_cluster_without_gpus(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, "cpu|4|infinite|2|(null)\n")
    new.machine("mine", config)
    made = load_machine("mine", config / "machines")
    assert (made.device, made.workers_per_node, made.partitions[0].max_minutes) == ("cpu", 2, 525600)


def test_where_there_is_no_slurm_it_says_what_to_do(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(subprocess, "run", missing)
    with pytest.raises(ConfigError, match=r"sinfo is not installed here: .*workstation\.yaml"):
        new.machine("mine", config)
    assert not (config / "machines/mine.yaml").exists()


def test_a_study_of_three_answers_can_be_planned(config: Path) -> None:
    new.study("mine", config, "lenet", "ddp horovod", "1,2")
    made = make_plan(load_study("mine", config / "studies"), LAPTOP)
    assert len(made.runs) == 2 * 2 * 2
    new.study("other", config, "", "", "")
    assert len(make_plan(load_study("other", config / "studies"), LAPTOP).runs) == 4


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"model": "no-such-model"}, "no-such-model"),
        ({"frameworks": "ddp]\nrepeats: 9"}, "frameworks: .*allowed"),
        ({"workers": "many"}, "many"),
    ],
)
def test_a_wrong_answer_leaves_no_file(config: Path, answers: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        new.study("mine", config, **{"model": "", "frameworks": "", "workers": "", **answers})
    assert list((config / "studies").iterdir()) == []
    with pytest.raises(ConfigError, match="is no name"):
        new.study("../mine", config, "", "", "")
