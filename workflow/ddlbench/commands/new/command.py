"""`ddlbench new`: a file to begin with, of a machine, a study or a program."""

from pathlib import Path
from typing import Any

from ddlbench.commands.call import Call
from ddlbench.settings.config import ConfigError


def add(commands: Any) -> None:
    """Add the command to those of `ddlbench`."""
    new = commands.add_parser(
        "new", help="make a first file for a machine, a study or a program"
    ).add_subparsers(dest="kind", required=True)
    machine = new.add_parser(
        "machine", help="on a login node: filled in from SLURM; what is left to set is marked"
    )
    study = new.add_parser("study", help="a commented study, of a model or of a program")
    for parent, folder in ((machine, "machines"), (study, "studies")):
        parent.add_argument("name", help=f"config/{folder}/<name>.yaml")
    study.add_argument(
        "--model", help="such as resnet50, or your <module>:<function>; default: resnet8_half"
    )
    study.add_argument(
        "--dataset", help="such as imagenet, or a file of config/datasets; default: mnist5k"
    )
    study.add_argument("--frameworks", help="such as ddp,horovod; default: ddp")
    study.add_argument("--workers", help="such as 1,2,4; default: 1,2")
    study.add_argument(
        "--program", help="a file of config/programs, in place of model and frameworks"
    )
    program = new.add_parser(
        "program", help="from a training program's --help and source; --try shows what is read"
    )
    program.add_argument(
        "program",
        nargs="?",
        help="such as train.py; with --try the program's name (default: the newest file's)",
    )
    program.add_argument("--name", help="config/programs/<name>.yaml; default: the program's name")
    program.add_argument(
        "--environment", help="the folder of its own Python environment, if it has one"
    )
    program.add_argument(
        "--try",
        dest="trial",
        action="store_true",
        help="run it, and print what is read from its output",
    )
    program.add_argument("--seconds", type=float, default=60.0, help="of --try: time limit")
    program.add_argument(
        "--batch", type=int, default=8, help="samples per step of --try, on each worker"
    )
    program.add_argument(
        "--workers", type=int, default=1, help="of --try: two show whether ranks train together"
    )
    machine.set_defaults(answer=new_machine)
    program.set_defaults(answer=new_program)
    study.set_defaults(answer=new_study)


def new_machine(call: Call) -> int:
    """Write a machine file with what SLURM and the network say."""
    from ddlbench.commands.new import machine

    name = call.options.name
    path = machine.write(name, Path("config"))
    print(
        f"{path}: is written; read it, and fill in the lines marked SET. Then: ddlbench plan"
        f" --machine {name}"
    )
    return 0


def new_study(call: Call) -> int:
    """Write a study from the arguments of the command line."""
    from ddlbench.commands.new import study

    names = ("model", "dataset", "frameworks", "workers", "program")
    given = {name: value for name in names if (value := getattr(call.options, name))}
    path = study.write(call.options.name, Path("config"), **given)
    print(
        f"{path}: is written; change it as needed. Then: ddlbench plan --study {call.options.name}"
    )
    return 0


def new_program(call: Call) -> int:
    """Write a program's file from its --help and source; with --try, print what is read of its
    steps.
    """
    from ddlbench.commands.new import program, trial

    options = call.options
    if options.trial:
        if options.workers < 1:
            raise ConfigError(
                f"--workers: {options.workers} is not allowed; allowed: numbers from 1 on"
            )
        return trial.show(
            options.program, options.batch, options.seconds, Path("config"), options.workers
        )
    if options.program is None:
        raise ConfigError("program: is missing; allowed: the file that trains, such as train.py")
    path, page = program.write(options.program, options.name, options.environment, Path("config"))
    print(
        f"{path}: is written; read it, and fill in the lines marked SET. Then: ddlbench new program"
        f" --try {path.stem}"
    )
    if page.problem:
        print(*filter(None, [f"--help {page.problem}", page.hint]), sep="\n")
    return 0
