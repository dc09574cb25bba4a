"""Snakemake 9.27: a script is called by Python's path, which is not quoted: a path with a space
ends the job.

Without a guard: quoting changes nothing in a path that needs none.

Upstream (snakemake/snakemake): `PythonScript._execute_cmd` in script/__init__.py puts `py_exec`
into a shell's command as it is; `shlex.quote` there would patch it.
"""

import shlex
from typing import Any


def apply() -> None:
    """Quote Python's path. Nothing happens when it is called again."""
    from snakemake.script import PythonScript

    execute = PythonScript._execute_cmd
    if not getattr(execute, "quotes", False):

        def quoting(self: PythonScript, command: str, **named: Any) -> Any:
            return execute(
                self,
                command,
                **{k: shlex.quote(v) if k == "py_exec" else v for k, v in named.items()},
            )

        quoting.quotes = True  # type: ignore[attr-defined]
        PythonScript._execute_cmd = quoting
