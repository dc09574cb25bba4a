"""The development kit of ILSVRC 2012: which class each validation picture is of."""

import io
import tarfile
import zlib
from pathlib import Path

from ddlbench.data.datasets._files import checked, one_line
from ddlbench.data.source import SourceError

NAME = "ILSVRC2012_devkit_t12.tar.gz"
# Published at https://image-net.org/challenges/LSVRC/2012/2012-downloads.php and in torchvision, datasets/imagenet.py.
MD5 = "fa75699e90414af021442c21a62c3abf"
FOLDER = "ILSVRC2012_devkit_t12/data"


def validation_synsets(path: Path) -> list[str]:
    """One synset per picture, in the order of the pictures' names (the kit's readme.txt tells the format).

    Raises SourceError if the kit is another or damaged.
    """
    from scipy.io import loadmat  # arrays and text only, nothing that runs

    checked(path, MD5)
    try:
        with tarfile.open(path, "r:gz") as kit:
            truth = _read(kit, f"{FOLDER}/ILSVRC2012_validation_ground_truth.txt").decode("ascii").split()
            synsets = loadmat(io.BytesIO(_read(kit, f"{FOLDER}/meta.mat")), squeeze_me=True)["synsets"]
        names = {int(number): str(name) for number, name in zip(synsets["ILSVRC2012_ID"], synsets["WNID"], strict=True)}
        return [names[int(number)] for number in truth]
    except (tarfile.TarError, EOFError, KeyError, ValueError, zlib.error, OSError) as error:
        raise SourceError(f"{path}: cannot be read: {one_line(error)}") from None


def _read(kit: tarfile.TarFile, name: str) -> bytes:
    stream = kit.extractfile(name)
    if stream is None:
        raise KeyError(name)
    return stream.read()
