"""`ddlbench export`: the study in the form of another program; of the runs that are there where
only `ddlbench partial` was made.
"""

from pathlib import Path

from ddlbench.commands.call import Call
from ddlbench.core import layout, registry

PLACE = 12
HELP = "to TensorBoard, MLflow, RO-Crate, or an application"
ARGUMENTS = {"--to": {"required": True, "choices": registry.members("exports")}}


def run(call: Call) -> int:
    """Answer, and return the exit code."""
    from ddlbench.outlook import exports

    kind, home = call.options.to, call.settings.plan.home
    whole, partial = Path(layout.page(home)).parent, Path(layout.partial(home))
    only_partial = (partial / "study.json").exists() and not (whole / "study.json").exists()
    out = exports.export(kind, partial if only_partial else whole)
    print(f"{out}: {registry.member('exports', kind).__doc__.splitlines()[-1].format(folder=out)}")
    return 0
