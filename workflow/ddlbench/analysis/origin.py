"""Where, with what and how a run was made: columns of words, from what the record says of its origin."""

from __future__ import annotations

import shlex
from typing import Any

from ddlbench.analysis.record import Record
from ddlbench.core import registry
from ddlbench.core.columns import Column

COLUMNS = (
    Column("hosts", "str", "The computers that the ranks ran on, separated by commas."),
    Column("framework_version", "str", "Version of the package that the framework names."),
    Column("loader_version", "str", "Version of the package that the loader names."),
    Column("torch_version", "str", "Version of PyTorch."),
    Column("python_version", "str", "Version of Python."),
    Column("cpu", "str", "The processor of the computer that started the ranks."),
    Column("gpu", "str", "The first GPU of the computer that started the ranks; null without NVIDIA's driver."),
    Column("driver", "str", "NVIDIA's driver on the computer that started the ranks."),
    Column("kernel", "str", "Release of the Linux kernel on the computer that started the ranks."),
    Column(
        "data_sha256",
        "str",
        "SHA-256 of the manifest of the data that was read, which holds the SHA-256 of each part. Null where nothing "
        "is read.",
    ),
    Column("commit", "str", "The commit of ddlbench that made the run."),
    Column("uncommitted_changes", "boolean", "Whether files of ddlbench differed from that commit."),
    Column("command", "str", "The command that started the ranks."),
    Column(
        "initial_weights_sha256",
        "str",
        "SHA-256 of the model's weights before the first step. Runs that are to train the same thing begin alike.",
    ),
)


def values(record: Record) -> dict[str, Any]:
    """COLUMNS, as far as the record says them; None where it does not."""
    facts = record.said("ddlbench_facts", {})
    ranks = record.said("ddlbench_ranks", [facts])
    versions = facts.get("versions", {})
    # A member names the package whose version says most about it; what none names is in the log.
    framework = registry.member("frameworks", record.spec.adapter).DISTRIBUTION
    loader = registry.member("loaders", record.spec.loader).DISTRIBUTION
    return {
        "hosts": ",".join(sorted({rank["host"] for rank in ranks if "host" in rank})),
        "framework_version": versions.get(framework),
        "loader_version": versions.get(loader),
        "torch_version": versions.get("torch"),
        "python_version": facts.get("python"),
        "cpu": facts.get("cpu"),
        "gpu": facts.get("gpu"),
        "driver": facts.get("driver"),
        "kernel": facts.get("kernel"),
        "data_sha256": facts.get("data_sha256"),
        "commit": facts.get("commit"),
        "uncommitted_changes": facts.get("uncommitted_changes"),
        "command": facts.get("command"),
        "initial_weights_sha256": record.said("ddlbench_initial_weights_sha256"),
    }


def variables(command: str) -> dict[str, str]:
    """Variables of the environment that ranks were given: those that `env` gets at the beginning of their command."""
    try:
        words = shlex.split(command)
    except ValueError:  # written by others
        return {}
    known: dict[str, str] = {}
    for word in words[1:] if words[:1] == ["env"] else []:
        name, equals, value = word.partition("=")
        if not equals:
            break
        known[name] = value
    return known
