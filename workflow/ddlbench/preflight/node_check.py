"""Run a site's own check of a node (`node_check` in the machine file), such as `dcgmi diag -r 1`.

The first rank of each node calls it before ranks meet; `judge.py` makes an error of what it
returns.
"""

import os
import shlex
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO

from ddlbench.core.files import printable
from ddlbench.core.living import die_with_parent

LAST_LINES = 3  # of the output, in the error
LAST_BYTES = 16384  # of the output, in which they are looked for
LINE_CHARACTERS = 200
KILLED_S = 10.0  # in which a process that was killed ends


def failure(command: str, timeout_s: float, folder: Path) -> str | None:
    """Run the command and return why this node has failed, with the output's last lines; None if it
    exits with 0.

    What it prints is kept in a file without a name in `folder`, not in a pipe: a process that the
    command leaves behind would keep a pipe open.
    """
    with tempfile.TemporaryFile(dir=folder) as output:
        try:
            process = subprocess.Popen(
                shlex.split(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        except OSError as error:
            return f"could not be started: {error.strerror}"
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            what = f"did not end within {timeout_s:g} s (node_check_timeout_s)"
        else:
            if code == 0:
                return None
            what = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with suppress(
                subprocess.TimeoutExpired
            ):  # a process that waits for a device that hangs cannot be killed
                process.wait(KILLED_S)
        what += ", and does not end when it is killed" if process.poll() is None else ""
        printed = last_lines(output)
        return f"{what}: {printed}" if printed else f"{what}, without any output"


def last_lines(output: IO[bytes]) -> str:
    """Return the last lines of a file that are not empty, as one."""
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - LAST_BYTES))
    lines = output.read().decode("utf-8", errors="replace").splitlines()
    lines = [printable(line.strip())[:LINE_CHARACTERS] for line in lines if line.strip()]
    return " | ".join(lines[-LAST_LINES:])
