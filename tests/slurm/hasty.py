"""`python hasty.py ...` is `python -m snakemake ...` that asks SLURM each second how its jobs are.

Snakemake's SLURM plugin asks ten seconds later each time nothing has ended. Users do not mind; of
these tests, that would be most of the time.
"""

import asyncio
import sys
from typing import Any

from snakemake.cli import main
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor


async def soon(_: Any) -> None:
    await asyncio.sleep(1)


RemoteExecutor.sleep = soon  # type: ignore[method-assign]
sys.path[0] = ""  # as with -m
main()
