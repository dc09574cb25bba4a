"""config/README.md from the keys: `python -m ddlbench.settings.document > config/README.md`.

What a key means, allows and defaults to is said once: in the dataclasses of `study_keys.py`, `machine.py`,
`workflow.py` and `core/recipe.py`, and in each framework's OPTIONS. A test holds the page to them.
"""

from __future__ import annotations

import json
from typing import Any

from ddlbench.core import registry
from ddlbench.settings.keys import class_of, in_words, schema_of
from ddlbench.settings.machine import Machine
from ddlbench.settings.program import ProgramFile
from ddlbench.settings.recipe import RecipeFile
from ddlbench.settings.study import BATCH, REQUIRED
from ddlbench.settings.study_keys import BlockKeys, TopLevelKeys
from ddlbench.settings.workflow import Config

INTRO = """\
# Every key of every file in this folder

Made from what the program knows of each key, by `python -m ddlbench.settings.document > config/README.md`; do not
edit.

| where | what it says |
|---|---|
| `config.yaml` | which study to run, on which machine |
| `studies/<study>.yaml` | what to run: the axes of a study and the figures made from its runs |
| `machines/<machine>.yaml` | where to run: nodes, GPUs or cores, queue, software |
| `recipes/<recipe>.yaml` | how to train: everything that decides accuracy |
| `models/<module>.py` | models of your own |
| `programs/<program>.yaml` | a training program of your own: how it is started, and how its steps are read |
| `references/<reference>.csv` | published numbers with their sources, drawn beside ours |

A file's name, without its suffix, is its name in other files: at most 100 letters, digits, `.`, `_` and `-`. A
key that is not listed here is refused, and so are a key given twice and a value that is not allowed; the message
names the file, the key, the value and what is allowed. `ddlbench plan --study <study> --machine <machine>` checks
the files and counts the runs without starting any.

Whoever deploys the workflow with snakedeploy has to install the package too: `make install` in a clone of the same
release. docs/deploy.md there says more.

The files are YAML 1.2: `yes`, `no`, `on` and `off` are text, and so are `1:30` and dates. A number with zeros
before it (`010`) is refused. Aliases (`*name`) and merge keys (`<<`) work. Only `config.yaml` and the command
line are also read by Snakemake, as YAML 1.1: write `true` and `false` there, and `1.0e3` for `1e3`.

## Where to run what: config.yaml

Any of its keys can be given on the command line instead: `snakemake --profile profiles/local --config
study=mine`.
"""

DATA = """\
Keys of `data`; on the command line, `--config 'data={sources: {imagenet: /data/ILSVRC2012}}'`:
"""

CHECKPOINT = """\
Keys of `checkpoint`; on the command line, `--config 'checkpoint={minutes: 10}'`:
"""

STUDY = """\
## Studies

A study asks one question and names the runs that answer it. Its `runs` are **blocks**. A block is the
product of its axes: every model with every framework, loader, number of workers, batch size and schedule,
each `repeats` times. A complete study:

```yaml
title: Does Horovod keep up with DDP?

dataset: mnist5k
recipe: demo
models: [lenet]
loaders: [native]
schedules: [cosine]
epochs: 6
repeats: 3

runs:
  scaling:                       # 2 frameworks x 2 numbers of workers x 3 repeats = 12 runs
    frameworks: [ddp, horovod]
    workers: [1, 2]
    batch_per_worker: [64]
  large-batch:                   # 1 framework x 1 number of workers x 2 batch sizes x 3 repeats = 6 runs
    timed: false
    frameworks: [ddp]
    workers: [1]
    global_batch: [256, 1024]

figures:
  efficiency:
    plot: efficiency
    runs: [scaling]
  accuracy:
    plot: accuracy-batch-size
    runs: [large-batch]
```

**What holds where.** A key at the top level holds for every block that does not say it itself; a block's
own value replaces the top level's, it is not added to it. `batch_per_worker` and `global_batch` are two
ways to say the same thing: a block has exactly one of them, and its own replaces whichever the top level
has.

**A run is made once.** A run's id comes from its settings, so two blocks, or two studies, that name the
same run share it. If one of the blocks is timed, the run is.

The names that axes may hold are the files of `workflow/ddlbench/`: `datasets/`, `frameworks/`, `loaders/`,
`figures/`. Write one wrong and the message lists them all.

**Models of your own.** `models: [nets.wide:build]` is function `build` in `config/models/nets/wide.py`, or in
a module that is installed. It is called with the number of classes and the side of the pictures [pixels], and
returns a `torch.nn.Module` that makes scores [N, classes] of float pictures [N, 3, side, side]:

```python
from torch import nn


def build(classes, side):
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * side * side, classes))
```

The file, and what it imports from `config/models`, are part of the run: if one of them changes, the runs of this
model are stale, and no others. Their digest is column `model_sha256`. What a file reads or imports by a name
that it computes is not seen. The plan only reads the source; the preflight calls the function, and says file and
line if the model cannot be trained.
"""

OPTIONS = """\
Keys of each of `variants`: `framework`, a member of workflow/ddlbench/train/frameworks, and its options.
An option at its default is as good as left out.
"""

MACHINE = """\
## Machines

To add a machine, copy the file that is nearest, `local.yaml` for one computer or `slurm.yaml` for a
cluster, to `machines/<your machine>.yaml`, set what is marked there, and look at the plan before anything
runs:

```sh
ddlbench plan --machine <your machine>
snakemake --profile profiles/slurm --config machine=<your machine> account=<your project> -n
```

A study does not know its machine: its numbers of workers must fit, or a block with `fit: true` leaves those out that
do not. Up to `workers_per_node` workers share a node; more must fill nodes. With `launcher: slurm`, `partitions` and
`workers_per_node` have to be set.
"""

RECIPE = """\
## Recipes

A recipe holds what decides accuracy, so that every framework and every loader trains the same thing. The
learning rate follows the linear scaling rule: its peak is `base_lr` x global batch / `base_batch`. During
`warmup_epochs` the rate rises with each step, from `warmup_lr` to where the study's schedule stands when they end.
"""

PROGRAM = """\
## Programs

A training program that exists already. It runs as it is; ddlbench starts, watches and ends it, and makes the same
record of its steps as of its own trainings:

```yaml
command: python train.py --batch-size {batch_per_worker} --precision {precision} --out {folder}
files: [train.py, configs]
settings: {precision: [bf16, fp32]}
sample: tokens
lines: 'step (?P<step>\\d+).*?loss (?P<loss>[\\d.]+).*?(?P<samples_per_s>[\\d.,]+) tok/s'
resume: --resume {folder}/last.pt
```
"""

REFERENCES = """\
## References

CSV files with one published number per row. `model`, `framework`, `loader`, `workers`, `global_batch` and
`schedule` say which run it belongs to, empty where it does not matter; `quantity`, `relation` (`approx`,
`above`, `below`), `value` and `unit` are the number as it was published, `source` is where. A number
without a source does not belong here. `aach2023-kernels.csv` keeps the columns of that paper's Table 2.
"""


def page() -> str:
    """The text of config/README.md."""
    config, machine, recipe = schema_of(Config), schema_of(Machine), schema_of(RecipeFile)
    block, study = schema_of(BlockKeys), schema_of(TopLevelKeys)
    either = {key: f"required: this or `{other}`" for key, other in zip(BATCH, BATCH[::-1], strict=True)}
    return "\n".join(
        [
            INTRO,
            _table(config),
            DATA,
            _table(_inside(config, "data")),
            CHECKPOINT,
            _table(_inside(config, "checkpoint")),
            _inner(config, "what_if"),
            STUDY,
            "Keys of the top level only:\n",
            _table(study),
            *(_inner(study, name) for name in ("audit", "control", "inference", "records")),
            "Keys of a block, or of the top level for all blocks; required in one of the two places:\n",
            _table({**block, "required": REQUIRED}, either),
            *(_inner(block, name) for name in ("measure", "interrupt")),
            "Keys of a figure:\n",
            _table(_inside(study, "figures")),
            OPTIONS,
            *(text for name in registry.members("frameworks") for text in _options(name)),
            MACHINE,
            _table(machine),
            _inner(machine, "preflight"),
            _inner(machine, "partitions", "each of "),
            RECIPE,
            _table(recipe),
            _inner(recipe, "by_batch", "each row of "),
            PROGRAM,
            _table(schema_of(ProgramFile)),
            REFERENCES.rstrip("\n"),
        ]
    )


def _inside(of: dict[str, Any], name: str) -> dict[str, Any]:
    """The rules of a key whose values, or the values of whose list or mapping, have keys themselves."""
    rules: dict[str, Any] = of["properties"][name]
    places = [rules, rules.get("items"), rules.get("additionalProperties"), *rules.get("anyOf", ())]
    return next(place for place in places if isinstance(place, dict) and "properties" in place)


def _inner(of: dict[str, Any], name: str, each: str = "") -> str:
    """The table of such a key."""
    return f"Keys of {each}`{name}`:\n\n{_table(_inside(of, name))}"


def _options(framework: str) -> tuple[str, str]:
    """A framework's options: a heading and a table."""
    options = registry.options(framework)
    if not options:
        return f"`{framework}` has no options.\n", ""
    return f"Options of `{framework}`:\n", _table(schema_of(class_of(options)))


def _table(of: dict[str, Any], defaults: dict[str, str] | None = None) -> str:
    """One row per key; `defaults` are texts for keys whose default the schema does not say."""
    lines = ["| key | meaning | allowed | default |", "|---|---|---|---|"]
    for key, rules in of["properties"].items():
        if key in of.get("required", ()):
            default = "required"
        elif rules.get("type") == "object" and rules.get("default", {}) is not None:
            default = "`{}`"  # of keys inside, their own defaults hold
        elif rules["default"] is None and "null" not in str(rules.get("anyOf")):
            default = (defaults or {}).get(key, "left out")
        else:
            default = f"`{json.dumps(rules['default'])}`"
        lines.append(f"| `{key}` | {rules['description']} | {in_words(rules)} | {default} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page())
