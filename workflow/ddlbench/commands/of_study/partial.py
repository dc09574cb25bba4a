"""`ddlbench partial`: page, figures and tables of the runs that are there, beside those of the
whole.
"""

import sys
from pathlib import Path

from ddlbench.commands.call import Call
from ddlbench.commands.of_study import NO_ARGUMENTS
from ddlbench.core import files, layout

PLACE = 7
HELP = "page, figures and tables of the runs finished so far, in a folder of their own"
ARGUMENTS = NO_ARGUMENTS


def run(call: Call) -> int:
    """Answer, and return the exit code."""
    from ddlbench.commands import configuration
    from ddlbench.show.page.partial import make

    config, _, planned = call.settings
    terminal, log = sys.stdout, Path(layout.study_log(planned.home, "partial"))
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        with files.logged(log):
            lines = make(config, configuration.terms(planned.machine, config["checkpoint"]))
    finally:
        sys.stdout = terminal
    call.show(lines, lines)
    return 0
