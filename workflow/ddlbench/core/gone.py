"""Names that users could type in release 0.1.0 and that are gone, with what took their place. Kept
for one release.

COMMANDS are words after `ddlbench` (`commands/main.py`), TARGETS words after `snakemake`
(`commands/checks.py`), KEYS those of the YAML files and of `--config`, in dots where they are
nested (`settings/keys.py`). A message is the name, a colon and the sentence.
"""

COMMANDS: dict[str, str] = {
    "completion": (
        "is gone; remove `source <(ddlbench completion)` from your shell's start file, ask ddlbench"
        " --help"
    ),
    "seal": (
        "records are sealed when their run ends; one that has no seal is made again once its folder"
        " is moved away"
    ),
}
TARGETS: dict[str, str] = {
    "application": "is an export now: ddlbench export --to application, after snakemake page",
    "recommend": (
        "is gone; the page says which framework and how many workers, and its tables have time and"
        " price"
    ),
    "what_if": "is gone; snakemake predict says how fast more workers than were measured would be",
}
KEYS: dict[str, str] = {
    "audit": "is gone; ddlbench audit prints what breaks a comparison and ends with 1 on errors",
    "control": (
        "is gone; repeats of runs are made in random order, and rule drift of the audit reads them"
    ),
    "controller": "is gone; Horovod's ranks meet by Gloo, and reduce by NCCL on GPUs",
    "preflight": (
        "is gone with the screening of nodes; node_check names a command that a node has to pass"
    ),
    "reduction": "is gone, and Adasum with it; gradients are averaged over the workers",
    "start_patience_s": "is called start_timeout_s now",
    "target": (
        "is gone with snakemake recommend; the page says which framework and how many workers"
    ),
    "what_if": (
        "is gone; snakemake predict takes the numbers of workers that the study plans, and no other"
        " changes"
    ),
}


def key_sentence(path: str) -> str | None:
    """Return the replacement of the key at `path`, such as `variants.mine.controller`; None if no
    such key was removed.

    A key may lie deeper than in KEYS, because studies and machines choose the names of the keys
    above it.
    """
    return next((text for name, text in KEYS.items() if f".{path}".endswith(f".{name}")), None)
