"""Commands about a study, a file each. A command prints its answer, for programs as JSON, and
writes what is a table beside the others. None starts a job. Rooms do the work; what they import
comes late, so that a plan needs no pandas.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from ddlbench.commands.call import Call
from ddlbench.core import registry

# Arguments that many commands share, for `argparse`: the name of an argument, and its other
# properties.
Arguments = Mapping[str, Mapping[str, Any]]
NO_ARGUMENTS: Arguments = {}
JSON = {"--json": {"action": "store_true", "help": "the same for programs"}}
ALL = {
    "--all": {
        "action": "store_true",
        "help": "all lines, also those that a terminal leaves out; a pipe gets all",
    }
}


class CommandMember(Protocol):
    """One file of this room."""

    PLACE: int  # among the others, in `ddlbench --help`
    HELP: str  # one line
    ARGUMENTS: Arguments  # beside those that all have

    @staticmethod
    def run(call: Call) -> int:
        """Answer, and return the exit code. Raises ConfigError."""


def members() -> dict[str, Any]:
    """Return the commands by name, in their order."""
    found = {name: registry.member("of_study", name) for name in registry.members("of_study")}
    return dict(sorted(found.items(), key=lambda item: int(item[1].PLACE)))
