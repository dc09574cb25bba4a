"""A research object (RO-Crate 1.1): tables, figures and page of the study with what they are, for
an archive.

{folder}/ro-crate-metadata.json
"""

from mimetypes import guess_type
from pathlib import Path
from typing import Any

import pandas as pd

PACKAGE = "rocrate==0.16.0"


def write(document: dict[str, Any], runs: pd.DataFrame, epochs: pd.DataFrame, folder: Path) -> None:
    """Copy the files into the crate; who made them is left to the person who archives."""
    from rocrate.rocrate import ROCrate

    crate, home = ROCrate(), folder.parent.parent
    crate.name = f"{document['study']} on {document['machine']}: {document['title']}"
    answers = [f"{row['question']} {row['words']}" for row in document["answers"]]
    crate.description = "\n".join(answers) or document["title"]
    for file in sorted(
        [*home.glob("*.html"), home / "study.json", *home.glob("tables/*"), *home.glob("figures/*")]
    ):
        name, kind = (
            file.relative_to(home).as_posix(),
            guess_type(file)[0] or "application/x-parquet",
        )
        crate.add_file(file, name, properties={"name": name, "encodingFormat": kind})
    crate.write(folder)
