"""Files to begin with: they are what the cluster says, can be loaded, and take nothing's place."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from ddlbench.commands.new import machine as new_machine
from ddlbench.commands.new import study as new_study
from ddlbench.plan.runs import make_plan
from ddlbench.settings.config import ConfigError
from ddlbench.settings.machine import Machine, load_machine
from ddlbench.settings.study import load_study
from ddlbench.slurm import interfaces, sinfo, squeue

from tests.builders.machines import LAPTOP
from tests.conftest import ROOT
from tests.facts import missing, refuses

# A cluster that is like JUWELS Booster, in the words of SLURM 22.05.
SINFO = """\
login|2|30:00|8|(null)
booster|884|1-00:00:00|96+|gpu:a100:4(S:0-1)
develbooster|4|02:00:00|96|gpu:a100:4(S:0-1)
closed|900|02:00:00|96|gpu:a100:4(S:0-1)
"""
PARTITIONS = """\
PartitionName=booster AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Default=YES QoS=N/A DefaultTime=00:30:00 \
MaxNodes=384 MaxTime=1-00:00:00 MinNodes=1 Nodes=jwb[0001-0884] State=UP TotalCPUs=84864 TotalNodes=884 \
SelectTypeParameters=NONE DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED TRES=cpu=84864,mem=1G,gres/gpu=3536
PartitionName=develbooster MaxNodes=UNLIMITED MaxTime=02:00:00 State=UP TotalNodes=4 DefMemPerNode=UNLIMITED
PartitionName=closed MaxNodes=UNLIMITED MaxTime=02:00:00 State=DOWN TotalNodes=900
"""
NODE = (
    "NodeName={} Arch=x86_64 CoresPerSocket=24 CPUAlloc=0 CPUEfctv=96 CPUTot=96 CPULoad=0.01"
    " Gres={} NodeAddr={} OS=Linux 4.18.0-513.5.1.el8.x86_64 #1 SMP Fri Sep 29 RealMemory=502000"
    " AllocMem=0 FreeMem=498000 Sockets=2 Boards=1 MemSpecLimit=2000 State=IDLE ThreadsPerCore=2"
    " TmpDisk=0 Weight=1 Partitions={} CfgTRES=cpu=96,mem=502000M,billing=96,gres/gpu=4 Reason=fan"
    " CoresPerSocket=1 Gres=gpu:0 [root@2026-01-01]\n"
)
NODES = "".join(
    NODE.format(name, gres, name, partitions)
    for name, gres, partitions in (
        ("jwb0001", "gpu:a100:4(S:0-1)", "booster,develbooster"),
        ("jwb0002", "gpu:a100:4(S:0-1)", "booster"),
        ("jwb0003", "gpu:h100:2", "booster"),
    )
)
SITE = """\
Configuration data as of 2026-11-22T15:00:00
AccountingStorageEnforce = associations,limits
AccountingStorageType   = accounting_storage/slurmdbd
DefMemPerNode           = UNLIMITED
SelectTypeParameters    = CR_CORE_MEMORY
SLURM_VERSION           = 22.05.8
"""
IP = (
    "lo UNKNOWN 127.0.0.1/8\neth9 UP 10.2.0.1/16\nib0@x UP 10.0.0.1/16\neth1 DOWN\neth0 UP"
    " 10.1.0.1/16 fe80::1/64\n"
)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    for folder in ("machines", "studies"):
        (tmp_path / "config" / folder).mkdir(parents=True)
    (tmp_path / "config/recipes").symlink_to(ROOT / "config/recipes")
    return tmp_path / "config"


def made(folder: Path, monkeypatch: pytest.MonkeyPatch, **says: str) -> tuple[Machine, str]:
    """The machine, and its file's text, on a cluster that says this; a command that is not given is
    not there.
    """

    def ask(command: list[str]) -> str:
        what = command[-1] if command[0] == "scontrol" else command[0]
        if what not in says:
            raise ConfigError(f"{what} is not installed here")
        return says[what]

    def printed(*command: str) -> str:
        return says.get(command[-1] if command[0] == "scontrol" else command[0], "")

    monkeypatch.setattr(sinfo, "ask", ask)
    monkeypatch.setattr(squeue, "printed", printed)
    path = new_machine.write("mine", folder)
    return load_machine("mine", folder / "machines"), path.read_text()


def test_a_machine_file_is_what_the_cluster_says(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says = {"sinfo": SINFO, "partition": PARTITIONS, "node": NODES, "config": SITE, "ip": IP}
    mine, text = made(config, monkeypatch, **says)
    assert (mine.device, mine.device_name, mine.nodes, mine.workers_per_node) == (
        "cuda",
        "a100",
        384,
        4,
    )
    assert (mine.cores_per_worker, mine.loader_threads) == (
        12,
        12,
    )  # real cores, not hardware threads
    assert mine.slurm_flags == ("--hint=nomultithread",)
    assert [(p.name, p.max_nodes, p.max_minutes) for p in mine.partitions] == [
        ("booster", 384, 1440),
        ("develbooster", 4, 120),
    ]
    (line,) = [line for line in text.splitlines() if 'name: "booster"' in line]
    assert missing(line.partition("#")[2], 1, "another kind") == []
    assert mine.memory_mb_per_worker is None and "DefMemPerNode=UNLIMITED" in text
    assert dict(mine.environment) == {"NCCL_SOCKET_IFNAME": "ib0", "GLOO_SOCKET_IFNAME": "ib0"}
    assert "eth0" in text and "eth1" not in text
    assert "account=" in text and text.count("SET") > 5
    with pytest.raises(ConfigError, match="is there already"):
        new_machine.write("mine", config)
    assert (config / "machines/mine.yaml").read_text() == text


def test_names_of_digits_are_text(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SLURM calls GPUs so (`gpu:3090:4`), and may call partitions so."""
    says = {
        "sinfo": SINFO.replace("a100", "3090").replace("develbooster", "2024"),
        "node": NODES.replace("a100", "3090"),
        "partition": PARTITIONS.replace("develbooster", "2024"),
        "config": SITE,
        "ip": IP,
    }
    mine, _ = made(config, monkeypatch, **says)
    assert mine.device_name == "3090"
    assert [p.name for p in mine.partitions] == ["booster", "2024"]


@pytest.mark.parametrize(
    ("gres", "gpus", "kind"),
    [
        ("gpu:3090:4(S:0-1)", 4, "3090"),
        ("gpu:1g.10gb:14(S:0,IDX:0-13)", 14, "1g.10gb"),
        ("gpu:1080ti:2,gpu:4090:6", 8, "1080ti"),
        ("gpu:6", 6, None),
        ("nvme:2,gpu:h100:4", 4, "h100"),
        ("shard:gpu:8", 0, None),
        ("(null)", 0, None),
    ],
)
def test_types_of_gpus_are_types(gres: str, gpus: int, kind: str | None) -> None:
    node = sinfo.Node(gres, 8)
    assert (node.gpus, node.kind) == (gpus, kind)


def test_a_partition_that_gives_way_comes_last_and_says_so() -> None:
    printed = "scavenge|9|02:00:00|16|gpu:4\nbooster|4|02:00:00|16|gpu:4"
    said = (
        "PartitionName=scavenge PreemptMode=REQUEUE State=UP\nPartitionName=booster PreemptMode=OFF"
        " State=UP"
    )
    site = {"PreemptType": "preempt/partition_prio"}
    found = sinfo.queues(printed, said, site=site)
    assert [queue.name for queue in found] == ["booster", "scavenge"]
    text = new_machine.text(found, site, [])
    (line,) = [line for line in text.splitlines() if 'name: "scavenge"' in line]
    entry, _, note = line.partition("#")
    assert yaml.safe_load(entry) == [{"name": "scavenge", "max_nodes": 9, "max_minutes": 120}]
    assert missing(note, "give way", "PreemptMode=REQUEUE") == []
    assert text.count("give way") == 1
    alone = sinfo.queues(
        printed, said, site={"PreemptType": "preempt/none"}
    )  # nobody is preempted here
    assert [queue.name for queue in alone] == ["scavenge", "booster"]


def test_without_scontrol_and_ip_it_is_what_sinfo_says(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, text = made(config, monkeypatch, sinfo=SINFO)
    assert (mine.nodes, mine.workers_per_node, mine.cores_per_worker) == (900, 4, 24)
    assert missing(text, "96 CPUs", "sinfo", "hardware threads") == []
    assert dict(mine.environment) == {} and mine.memory_mb_per_worker is None


def test_what_others_may_have_written_there_does_no_harm(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = (
        "slurm_load_partitions: Unable to contact slurm controller\n\x00=\n= =\nNodeName="
        " CPUTot=many Sockets=0\n"
    )
    says = {
        "sinfo": f"{noise}|||||\na|b|c|d|e\n{SINFO}",
        "partition": noise,
        "node": noise,
        "config": noise,
    }
    mine, _ = made(config, monkeypatch, **says, ip="\n<script> UP 1.2.3.4\n")
    assert (mine.nodes, mine.workers_per_node, dict(mine.environment)) == (900, 4, {})


@pytest.mark.parametrize("sinfo", ["", "closed|900|02:00:00|96|gpu:4\n", "nonsense\n"])
def test_no_open_partition_is_an_error(
    config: Path, monkeypatch: pytest.MonkeyPatch, sinfo: str
) -> None:
    with refuses(ConfigError, "no partition"):
        made(config, monkeypatch, sinfo=sinfo, partition=PARTITIONS)
    assert [*(config / "machines").iterdir()] == []


@pytest.mark.parametrize(
    ("partition", "site", "memory", "words"),
    [
        (
            "DefMemPerCPU=1000",
            "SelectTypeParameters = CR_CORE_MEMORY",
            125_000,
            "jobs that do not ask get DefMemPerCPU",
        ),
        (
            "",
            "DefMemPerNode = 4000\nSelectTypeParameters = CR_CPU_MEMORY",
            125_000,
            "get DefMemPerNode=4000",
        ),
        (
            "DefMemPerNode=4000",
            "SelectTypeParameters = CR_CORE",
            None,
            "SLURM does not count memory",
        ),
        ("", "", None, "SET if jobs must ask"),
    ],
)
def test_jobs_ask_for_memory_where_they_would_get_a_part_of_it(
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    partition: str,
    site: str,
    memory: int | None,
    words: str,
) -> None:
    says = {
        "partition": f"PartitionName=booster State=UP {partition}\n",
        "node": NODES,
        "config": site,
    }
    mine, text = made(config, monkeypatch, sinfo=SINFO.splitlines()[1], **says)
    assert mine.memory_mb_per_worker == memory
    assert words in text


def test_infiniband_goes_first_then_what_is_fast(tmp_path: Path) -> None:
    for name, kind, speed in (("eth0", "1", "1000"), ("eth9", "1", "100000"), ("hsn0", "32", "-1")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "type").write_text(f"{kind}\n")
        (tmp_path / name / "speed").write_text(f"{speed}\n")
    found = interfaces.interfaces(
        "lo UP 127.0.0.1/8\neth0 UP 1/8\neth9 UP 2/8\nhsn0 UP 3/8\ngone DOWN\nbare UP", tmp_path
    )
    wanted = [("hsn0", True, None), ("eth9", False, 100_000), ("eth0", False, 1000)]
    assert [(one.name, one.infiniband, one.mbit_per_s) for one in found] == wanted


def test_a_cluster_without_gpus(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, _ = made(config, monkeypatch, sinfo="cpu|4|infinite|2|(null)\n")
    assert (mine.device, mine.workers_per_node, mine.partitions[0].max_minutes) == (
        "cpu",
        2,
        525600,
    )


def test_where_there_is_no_slurm_it_says_what_to_do(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(*_: object, **__: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(subprocess, "run", absent)
    with refuses(ConfigError, "sinfo", "not installed", "workstation.yaml"):
        new_machine.write("mine", config)
    assert not (config / "machines/mine.yaml").exists()


def test_a_study_of_options_can_be_planned(config: Path) -> None:
    new_study.write("mine", config, model="lenet", frameworks="ddp horovod")
    made = make_plan(load_study("mine", config / "studies"), LAPTOP)
    assert len(made.runs) == 2 * 2 * 3
    assert {job.spec.epochs for job in made.runs.values()} == {3}
    new_study.write("wide", config, model="lenet", workers="4,16")
    wide = make_plan(load_study("wide", config / "studies"), replace(LAPTOP, workers_per_node=16))
    assert {job.spec.epochs for job in wide.runs.values()} == {16}  # 4 steps each
    new_study.write("other", config)
    assert len(make_plan(load_study("other", config / "studies"), LAPTOP).runs) == 6


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"model": "no-such-model"}, "no-such-model"),
        ({"dataset": "no-such-set"}, "no-such-set"),
        ({"frameworks": "ddp]\nrepeats: 9"}, "frameworks: .*allowed"),
        ({"workers": "many"}, "many"),
        ({"program": "no-such"}, "no-such"),
    ],
)
def test_a_wrong_answer_leaves_no_file(config: Path, answers: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        new_study.write("mine", config, **answers)
    assert list((config / "studies").iterdir()) == []
    with pytest.raises(ConfigError, match="is not a name"):
        new_study.write("../mine", config)
