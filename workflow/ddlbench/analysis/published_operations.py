"""Operations of models as they were published: `config/references/operations.csv`."""

from ddlbench.core.files import read_csv
from ddlbench.settings.config import CONFIG

PUBLISHED = CONFIG / "references" / "operations.csv"


def read_published() -> dict[tuple[str, int], tuple[float, str]]:
    """Read (operations of a forward pass, their source) by model and pixels on a side.

    Files hold multiply-adds.
    """
    return {
        (row["model"], int(row["image_size"])): (2 * float(row["multiply_adds"]), row["source"])
        for row in read_csv(PUBLISHED)
    }
