"""Install what pip would install here, each file checked against its SHA-256 in envs/lock.txt.

    .venv/bin/python envs/locked.py [pip's options] -r envs/requirements.txt

pip first says what it would install: that depends on the torch that it finds (a build with CUDA brings fifty packages),
on Python and on the processor. Then exactly that is installed, with --require-hashes. The lock has the digests of all
files that are published for a version, of every platform.

Builds of torch with a label (2.13.0+cpu) are not among them: they come from an index or a folder that somebody pointed
pip to. They are installed as that place gives them, and named.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

LOCK = Path(__file__).with_name("lock.txt")
LABELLED = ("torch", "torchvision", "torchao")  # have builds for one kind of device
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet")


def read_lock() -> dict[str, tuple[str, list[str]]]:
    """Version and digests by normalised name."""
    lines = (line.split() for line in LOCK.read_text(encoding="utf-8").splitlines() if "==" in line)
    pins = ((*first.split("=="), hashes) for first, *hashes in lines)
    return {
        normalised(name): (version, [hash_.removeprefix("--hash=sha256:") for hash_ in h]) for name, version, h in pins
    }


def normalised(name: str) -> str:
    """A name as indices compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> None:
    asked, lock = sys.argv[1:], read_lock()
    with tempfile.TemporaryDirectory() as folder:
        pins, found, chosen = (Path(folder, name) for name in ("pins.txt", "found.json", "chosen.txt"))
        pins.write_text("".join(f"{name}=={version}\n" for name, (version, _) in lock.items()))
        done = subprocess.run([*PIP, "--dry-run", "--report", str(found), "-c", str(pins), *asked])
        if done.returncode:
            sys.exit(done.returncode)
        locked, own = [], []
        for item in json.loads(found.read_text())["install"]:
            name, version = normalised(item["metadata"]["name"]), item["metadata"]["version"]
            pinned, digests = lock.get(name, ("", []))
            if version == pinned:
                locked.append(" ".join([f"{name}=={version}", *(f"--hash=sha256:{digest}" for digest in digests)]))
            elif name in LABELLED and version.startswith(f"{pinned}+"):
                own.append(f"{name}=={version}")
                print(f"note: {name} {version} has no hash in envs/lock.txt; it is {item['download_info']['url']}")
            else:
                sys.exit(f"ERROR: {name} {version} is not in envs/lock.txt (CONTRIBUTING.md tells how to add it)")
        options = ["--no-deps", *(word for word in asked if word.startswith("-") and word != "-r")]
        for lines, checked in ((own, []), (locked, ["--require-hashes"])):
            if lines:
                chosen.write_text("\n".join(lines))
                done = subprocess.run([*PIP, *checked, *options, "-r", str(chosen)])
                if done.returncode:
                    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
