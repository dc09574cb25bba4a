"""Snakemake as `python -m snakemake` starts it, in a process forked from one that has imported it
already.

The import takes 1.3 s of CPU time, and the tests of this tier start Snakemake some 70 times. All
else is the same: a process of its own, its folder, its environment and its command line. That the
command itself starts Snakemake, other tests show: those of the SLURM tier, of the login node
(test_bill.py), and of secrets (test_secrets.py).
"""

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

TIMEOUT_S = 3600  # the demo, beside other tests on two cores
# The two processes speak through a socket in the folder for temporary files, whose path may have
# 107 characters.
POSSIBLE = len(tempfile.gettempdir()) <= 60
_fork = multiprocessing.get_context("forkserver")
_fork.set_forkserver_preload(["snakemake.cli"])


def snakemake(
    project: Path, arguments: Sequence[str], environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """What it ends with, and all that it prints. Raises TimeoutExpired, and kills it, after 20
    minutes.
    """
    with tempfile.NamedTemporaryFile() as output:
        process = _fork.Process(
            target=_main, args=(str(project), list(arguments), dict(environment), output.name)
        )
        process.start()
        process.join(TIMEOUT_S)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(
                list(arguments), TIMEOUT_S, Path(output.name).read_bytes()
            )
        said = Path(output.name).read_text(errors="replace")
    return subprocess.CompletedProcess(list(arguments), process.exitcode, said)


def _main(project: str, arguments: list[str], environment: dict[str, str], output: str) -> None:
    with Path(os.devnull).open("rb") as nothing, Path(output).open("wb") as file:
        os.dup2(nothing.fileno(), 0)
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(project)
    os.environ.clear()
    os.environ.update(environment)
    root = str(Path(__file__).resolve().parents[2])
    sys.path[:] = [project, *(path for path in sys.path if path not in ("", root))]
    sys.argv = ["snakemake", *arguments]
    from snakemake.cli import main

    sys.exit(main())
