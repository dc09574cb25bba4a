"""A research object (RO-Crate 1.1): tables, figures and page of the study with what they are, for an archive.

{folder}/ro-crate-metadata.json
"""

from mimetypes import guess_type
from pathlib import Path
from typing import Any

import pandas as pd

PACKAGE = "rocrate==0.16.0"


def write(found: dict[str, Any], runs: pd.DataFrame, epochs: pd.DataFrame, folder: Path) -> None:
    """The files are copied; who made them is left to the person who archives."""
    from rocrate.rocrate import ROCrate

    crate, home = ROCrate(), folder.parent.parent
    crate.name = f"{found['study']} on {found['machine']}: {found['title']}"
    crate.description = "\n".join(f"{row['question']} {row['words']}" for row in found["answers"]) or found["title"]
    for file in sorted([*home.glob("*.html"), home / "study.json", *home.glob("tables/*"), *home.glob("figures/*")]):
        name, kind = file.relative_to(home).as_posix(), guess_type(file)[0] or "application/x-parquet"
        crate.add_file(file, name, properties={"name": name, "encodingFormat": kind})
    crate.write(folder)
