"""Prepare one form of one data set: `python -m ddlbench.prepare mnist5k tfrecord <folder>/manifest.json`.

Written into a folder aside and renamed into place; the manifest comes last.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from ddlbench import __version__, registry
from ddlbench.config import ConfigError
from ddlbench.manifest import NAME, SPLITS, Manifest


def prepare(dataset: str, form: str, folder: Path, seed: int = 1) -> Manifest:
    """Write the form into `folder` and return its manifest; what lay there is replaced at the end only."""
    source = registry.member("datasets", dataset)
    target = registry.member("forms", form)
    aside = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    classes = source.classes()
    splits = {s: target.write(source.samples(s), s, aside, classes, seed) for s in SPLITS}
    versions = {"ddlbench": __version__}
    manifest = Manifest(dataset, form, classes, target.LABEL_OFFSET, seed, versions, splits)
    manifest.write(aside)
    (folder / NAME).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    aside.rename(folder)
    return manifest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset")
    parser.add_argument("form")
    parser.add_argument("manifest", type=Path, help="the form is written into its folder")
    arguments = parser.parse_args()
    try:
        manifest = prepare(arguments.dataset, arguments.form, arguments.manifest.parent)
    except ConfigError as error:  # the data set is not where its source looks for it
        sys.exit(str(error))
    for name, split in manifest.splits.items():
        print(f"{arguments.dataset} {arguments.form} {name}: {split.images} images, {split.bytes / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
