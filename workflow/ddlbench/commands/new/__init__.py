"""Files to begin with: `ddlbench new machine NAME`, `... new study NAME`, `... new program
train.py`.

The machine file (`machine.py`) has what SLURM and the network say on a login node (`sinfo.py`
asks and reads), and `SET` where only a person knows. The study (`study.py`) is made from options, a
program's file (`program.py`) from its --help and source; `trial.py` runs the program.
`<kind>.yaml.jinja` is what each looks like. Nothing that exists is written over.
"""

from collections.abc import Callable
from pathlib import Path

import jinja2

from ddlbench.core.files import write_text
from ddlbench.settings.config import NAME, NAME_IN_WORDS, ConfigError


def free(path: Path, name: str) -> Path:
    """Return the path, if a file of this name may be made there.

    Raises ConfigError, of one line.
    """
    if not NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is not a name; allowed: {NAME_IN_WORDS}")
    if not path.parent.is_dir():
        raise ConfigError(f"{path.parent} is not here: run this in the project's folder")
    if path.exists():
        raise ConfigError(f"{path} is there already; give another name")
    return path


def filled(kind: str, **values: object) -> str:
    """Return the text of a file of this kind, from its template here."""
    text = Path(__file__).with_name(f"{kind}.yaml.jinja").read_text(encoding="utf-8")
    template = jinja2.Template(
        text, trim_blocks=True, keep_trailing_newline=True, undefined=jinja2.StrictUndefined
    )
    return f"{template.render(values)}"


def checked(path: Path, text: str, load: Callable[[], object]) -> Path:
    """Write the file, and remove it again if it cannot be loaded."""
    write_text(path, text)
    try:
        load()
    except ConfigError:
        path.unlink()
        raise
    return path
