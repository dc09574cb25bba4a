"""`ddlbench plan`, `status`, `failures`, ...: questions about a study. What makes files is
Snakemake's.

A command is a file of `of_study/`, or of `new/`. Exit codes: 0; 1 where the answer is bad (audit,
verify) or something that people wrote is; 2 for a command line that argparse refuses.
"""

import argparse
import errno
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from ddlbench.commands import of_study
from ddlbench.commands.call import Call
from ddlbench.commands.new import command as new
from ddlbench.core import gone, registry
from ddlbench.settings.config import ConfigError, one_of

ABOUT = """\
Questions about a study. Files are made by Snakemake: where work is left, an answer ends with the
command that does it."""
QUIET_S = 1.5  # before a command reports that it computes


def parser() -> argparse.ArgumentParser:
    about = argparse.ArgumentParser(add_help=False)
    about.add_argument(
        "--profile",
        help="of Snakemake: profiles/juwels",
        default=os.environ.get("SNAKEMAKE_PROFILE"),
    )
    about.add_argument(
        "--study",
        help="a name of config/studies; default: as config/config.yaml or the profile says",
    )
    about.add_argument("--machine", help="a name of config/machines, likewise")
    about.add_argument(
        "--config",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="as with snakemake",
    )
    ddlbench = argparse.ArgumentParser(prog="ddlbench", description=ABOUT)
    commands = ddlbench.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, member in of_study.members().items():
        command = commands.add_parser(
            name, help=member.HELP, description=member.HELP, parents=[about]
        )
        command.set_defaults(answer=member.run)
        for argument, more in member.ARGUMENTS.items():
            command.add_argument(argument, **more)
    new.add(commands)
    return ddlbench


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command, and exit with its code. An error that people have to fix is one line."""
    name, *_ = asked = [*(sys.argv[1:] if arguments is None else arguments), ""]
    if name in gone.COMMANDS:
        parser().exit(2, f"{name}: {gone.COMMANDS[name]}\n")
    if name and not name.startswith("-") and name not in (*of_study.members(), "new"):
        parser().error(f"{name}: is not a command; {one_of((*of_study.members(), 'new'), name)}")
    options = parser().parse_args(asked[:-1])
    waiting = threading.Timer(
        QUIET_S, print, [f"ddlbench {options.command}: computing ..."], {"file": sys.stderr}
    )
    waiting.daemon = True
    if sys.stderr.isatty():
        waiting.start()
    try:
        code = options.answer(Call(options))
        sys.stdout.flush()
        sys.exit(code)
    except BrokenPipeError:  # whoever reads has seen enough, such as `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except ConfigError as error:
        sys.exit(str(error))
    except OSError as error:
        todo = "; free disk space, and try again" if error.errno == errno.ENOSPC else ""
        sys.exit(f"{error.filename}: {error.strerror}{todo}" if error.filename else str(error))
    finally:
        waiting.cancel()


def use_package_of_clone() -> None:
    """Re-execute this command with the package of the clone in whose folder it was called, if it
    runs another package. Several clones may share an environment, whose `ddlbench` is installed
    from one of them; Snakemake, too, uses the clone that it is called in.
    """
    here = Path("workflow").resolve()
    if (here / "ddlbench" / "__init__.py").exists() and here != registry.PACKAGE.parent.resolve():
        path = os.pathsep.join(filter(None, [str(here), os.environ.get("PYTHONPATH")]))
        code = "from ddlbench.commands.main import main; main()"
        os.execve(
            sys.executable,
            [sys.executable, "-c", code, *sys.argv[1:]],
            os.environ | {"PYTHONPATH": path},
        )


def script() -> None:
    """Run the program `ddlbench`, as it is installed."""
    use_package_of_clone()
    main()


if __name__ == "__main__":
    main()
