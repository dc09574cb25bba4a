"""Forks ranks on the pretended GPU: what they import takes longer than what they do, and is imported here once.

`python -m tests.pretended_gpu.serve <fifo>`: each line of the FIFO names a file of variables, as `env -0` writes them,
and a run's folder. The rank's exit code goes into `<file>.code`. CLIENT is what a launcher starts in place of a rank.
"""

import importlib
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from tests.pretended_gpu import rank

CLIENT = (
    'env -0 > "$1.$$"; echo "$1.$$ $2" > "$1"; until [ -s "$1.$$.code" ]; do sleep 0.2; done; exit $(cat "$1.$$.code")'
)
IMPORTED = ("deepspeed", "pandas", "timm", "torch._dynamo", "torch.distributed.fsdp", "torch.utils.data")


def main() -> None:
    asked = Path(sys.argv[1])
    for package in IMPORTED:
        with suppress(ImportError):
            importlib.import_module(package)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.mkfifo(asked)
    with os.fdopen(os.open(asked, os.O_RDWR), encoding="utf-8") as lines:  # a FIFO with a writer has no end
        for line in lines:
            if os.fork() == 0:
                wait_for_rank(*line.split())


def wait_for_rank(file: str, folder: str) -> None:
    """Fork the rank, and write its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    number = os.fork()
    if number == 0:
        os.environ.clear()
        os.environ.update(one.split("=", 1) for one in Path(file).read_text(encoding="utf-8").split("\0") if one)
        sys.argv[1:] = [folder]
        rank.main()
        sys.stdout.flush()
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
    Path(f"{file}.code").write_text(f"{code & 255}\n", encoding="utf-8")
    os._exit(0)


if __name__ == "__main__":
    main()
