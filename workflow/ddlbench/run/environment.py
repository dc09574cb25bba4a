"""Values of a machine's variables that no command line shows: read from its file, for the ranks' environment only.

`plan/launch.py` writes `NAME=...` for them, so that a token never reaches a record, a log or a list of processes.
"""

from itertools import takewhile
from pathlib import Path

from ddlbench.plan.launch import HIDDEN
from ddlbench.settings.config import CONFIG, ConfigError
from ddlbench.settings.machine import load_machine


def reveal(argv: list[str], machine: str, folder: Path = CONFIG / "machines") -> tuple[list[str], dict[str, str]]:
    """`argv` of `launch.command` without its hidden settings, and these variables with their values.

    The file is only read if there are any. Raises ConfigError if the machine's file has not got one of them any more.
    """
    settings = list(takewhile(lambda word: "=" in word, argv[1:])) if argv[:1] == ["env"] else []
    hidden = [word.split("=", 1)[0] for word in settings if word.split("=", 1)[1] == HIDDEN]
    if not hidden:
        return argv, {}
    values = dict(load_machine(machine, folder).environment)
    for name in hidden:
        if name not in values:
            file = folder / f"{machine}.yaml"
            raise ConfigError(f"{file}: environment: {name}: is missing; it was there when this job was planned")
    kept = [word for word in settings if word.split("=", 1)[0] not in hidden]
    return ["env", *kept, *argv[1 + len(settings) :]], {name: values[name] for name in hidden}
