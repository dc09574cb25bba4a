"""Install what pip would install here, each file checked against its SHA-256 in envs/lock.txt.

    .venv/bin/python envs/locked.py [options] -r envs/requirements.txt

First it is asked what would be installed: that depends on the torch that is found (a build with
CUDA brings fifty packages), on Python and on the processor. Then exactly that is installed, with
--require-hashes. The lock has the digests of all files that are published for a version, of every
platform.

Builds of torch with a label (2.13.0+cpu) are not among them: they come from an index or a folder
that somebody pointed pip to. They are installed as that place gives them, and named.

With --wheelhouse=FOLDER nothing is installed: the files are brought into that folder.

DDLBENCH_SITE names a folder whose PyTorch stays as it is (`make install TORCH=site`): it,
torchvision and what came with them (Triton, NVIDIA's libraries) are asked for in the versions that
are there.

uv does both where it is installed beside this Python: it fetches several files at once, and knows
files that it has fetched before. It is told what pip is configured to use. INSTALLER=pip takes pip.
Beside a site's PyTorch pip is asked what would be installed, because uv does not see what lies
elsewhere, and uv installs exactly that.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from importlib.metadata import distributions
from pathlib import Path

LOCK = Path(__file__).with_name("lock.txt")
LABELLED = ("torch", "torchvision", "torchao")  # have builds for one kind of device
OF_SITE = ("torch", "torchvision", "torchaudio", "triton", "pytorch-triton")
BROUGHT = ("nvidia-", "cuda-")  # what PyTorch's builds bring
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
UV = Path(sys.executable).with_name("uv")
# pip's settings that say where packages come from, and what uv calls them: as options, each with
# all of its values.
OPTIONS = {
    "index-url": "--default-index",
    "extra-index-url": "--extra-index-url",
    "find-links": "--find-links",
    "constraint": "--constraint",
    "trusted-host": "--allow-insecure-host",
}
VARIABLES = {
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
    "timeout": "UV_HTTP_TIMEOUT",
}


def read_lock() -> dict[str, tuple[str, list[str]]]:
    """Version and digests by normalised name."""
    lines = (line.split() for line in LOCK.read_text(encoding="utf-8").splitlines() if "==" in line)
    pins = ((*first.split("=="), hashes) for first, *hashes in lines)
    return {
        normalised(name): (version, [hash_.removeprefix("--hash=sha256:") for hash_ in h])
        for name, version, h in pins
    }


def of_site() -> dict[str, str]:
    """Version by normalised name of the site's PyTorch and of what came with it; empty without
    DDLBENCH_SITE.
    """
    place = os.environ.get("DDLBENCH_SITE")
    if not place:
        return {}
    there = {normalised(one.metadata["Name"]): one.version for one in distributions(path=[place])}
    return {
        name: version
        for name, version in there.items()
        if name in OF_SITE or name.startswith(BROUGHT)
    }


def asked_of(words: list[str], site: dict[str, str], folder: Path) -> list[str]:
    """What is asked for, with the site's versions of what the site has; files of requirements as
    copies in `folder`.
    """
    if not site:
        return words
    changed = []
    for place, word in enumerate(words):
        if place and words[place - 1] == "-r":
            lines = Path(word).read_text(encoding="utf-8").splitlines()
            copy = folder / f"{place}.txt"
            copy.write_text("\n".join(_sites(line, site) for line in lines), encoding="utf-8")
            changed.append(str(copy))
        else:
            changed.append(_sites(word, site))
    return changed


def _sites(line: str, site: dict[str, str]) -> str:
    """A requirement in the site's version, if the site has the package."""
    name = normalised(re.split(r"[\s=<>!~#;]", line.strip())[0])
    return f"{name}=={site[name]}" if name in site else line


def normalised(name: str) -> str:
    """A name as indices compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def run(argv: list[str], said: str | None = None) -> str:
    """What a command prints. Ends with its exit code if that is not 0."""
    done = subprocess.run(argv, input=said, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


def configured() -> dict[str, str]:
    """pip's settings: a variable goes before what is for `install`, and this before what is for all
    commands.
    """
    lines = re.findall(r"^(\S+)\.([a-z-]+)=('.*'|\".*\")$", run([*PIP, "config", "list"]), re.M)
    order = ("global", "install", ":env:")
    known = sorted(
        (line for line in lines if line[0] in order), key=lambda line: order.index(line[0])
    )
    return {name.removeprefix("default-"): str(ast.literal_eval(value)) for _, name, value in known}


def places() -> list[str]:
    """uv's options for what pip is configured to use; certificates and the like go into this
    process's variables.
    """
    settings = configured()
    options = [
        word
        for name, option in OPTIONS.items()
        for value in settings.get(name, "").split()
        for word in (option, value)
    ]
    if settings.get("no-index") not in (None, "0", "false"):
        options.append("--no-index")
    os.environ |= {VARIABLES[name]: value for name, value in settings.items() if name in VARIABLES}
    # As pip does it: the newest file of all places counts, and the system knows who is trusted.
    return [*options, "--index-strategy=unsafe-best-match", "--system-certs"]


def found_by_pip(asked: list[str], pins: Path, options: list[str]) -> list[tuple[str, str, str]]:
    """(name, version, where from) of what is not installed yet; of all with the option
    `--ignore-installed`.
    """
    report = pins.with_name("found.json")
    run(
        [
            *PIP,
            "install",
            "--quiet",
            "--dry-run",
            "--report",
            str(report),
            "-c",
            str(pins),
            *options,
            *asked,
        ]
    )
    items = json.loads(report.read_text())["install"]
    return [
        (item["metadata"]["name"], item["metadata"]["version"], item["download_info"]["url"])
        for item in items
    ]


def found_by_uv(asked: list[str], pins: Path, options: list[str]) -> list[tuple[str, str, str]]:
    """The same of all that is needed, installed or not."""
    files = [word for word in asked if word != "-r"] if "-r" in asked else ["-"]
    argv = [
        str(UV),
        "pip",
        "compile",
        "--quiet",
        "--no-header",
        "--no-annotate",
        "--python",
        sys.executable,
    ]
    text = run(
        [*argv, "-c", str(pins), *options, *files], "\n".join(asked) if files == ["-"] else None
    )
    pairs = (line.split(" ")[0].split("==") for line in text.splitlines() if "==" in line)
    return [(name, version, "where pip is configured to look") for name, version in pairs]


def main() -> None:
    """Resolve, compare with the lock, install."""
    lock, with_uv = read_lock(), UV.exists() and os.environ.get("INSTALLER") != "pip"
    given = [word for word in sys.argv[1:] if word.startswith("-") and word != "-r"]
    asked = [word for word in sys.argv[1:] if word not in given]
    target = [
        word for word in given if word.startswith("--target")
    ]  # where to; it changes nothing of what
    wheelhouse = [word.partition("=")[2] for word in given if word.startswith("--wheelhouse")]
    given = [word for word in given if not word.startswith("--wheelhouse")]
    options = [*places(), *given] if with_uv else given
    site = of_site()
    uv_finds = with_uv and not site
    with tempfile.TemporaryDirectory() as folder:
        pins, chosen = Path(folder, "pins.txt"), Path(folder, "chosen.txt")
        wanted = {name: version for name, (version, _) in lock.items()} | site
        pins.write_text("".join(f"{name}=={version}\n" for name, version in wanted.items()))
        asked = asked_of(asked, site, Path(folder))
        ask = found_by_uv if uv_finds else found_by_pip
        # What is found keeps to constraints; uv takes none that are no exact versions beside
        # digests.
        constraints = {
            place
            for place, word in enumerate(options)
            if "--constraint" in (word, *options[:place][-1:])
        }
        places_alone = [word for place, word in enumerate(options) if place not in constraints]
        locked, own = [], []
        asking = [option for option in options if option not in target] if uv_finds else list(given)
        if wheelhouse and not uv_finds:
            asking.append("--ignore-installed")
        for given_name, version, url in ask(asked, pins, asking):
            name = normalised(given_name)
            pinned, digests = lock.get(name, ("", []))
            if version == pinned:
                locked.append(
                    " ".join(
                        [f"{name}=={version}", *(f"--hash=sha256:{digest}" for digest in digests)]
                    )
                )
            elif name in LABELLED and version.startswith(f"{pinned}+"):
                own.append(f"{name}=={version}")
                print(f"note: {name} {version} has no hash in envs/lock.txt; it is from {url}")
            else:
                sys.exit(
                    f"ERROR: {name} {version} is not in envs/lock.txt (CONTRIBUTING.md tells how to"
                    " add it)"
                )
        install = (
            [str(UV), "pip", "install", "--python", sys.executable]
            if with_uv
            else [*PIP, "install"]
        )
        if wheelhouse:  # uv has no such command
            install = [*PIP, "download", "--dest", wheelhouse[0]]
            places_alone = [option for option in given if option not in target]
        for lines, checked in ((own, []), (locked, ["--require-hashes"])):
            if lines:
                chosen.write_text("\n".join(lines))
                run([*install, "--quiet", "--no-deps", *checked, *places_alone, "-r", str(chosen)])


if __name__ == "__main__":
    main()
