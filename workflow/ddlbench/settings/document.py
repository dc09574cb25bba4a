"""config/README.md from the schemas: `python -m ddlbench.settings.document > config/README.md`.

What a key means, allows and defaults to is said once: in `workflow/schemas/` for config and studies, in the dataclasses
`recipe.Recipe` and `machine.Machine`, and in each framework's OPTIONS. A test holds the page to them.
"""

from __future__ import annotations

import json
from typing import Any

from ddlbench.core import registry
from ddlbench.settings.config import NAMED, TYPES, schema
from ddlbench.settings.machine import SCHEMA as MACHINE_KEYS
from ddlbench.settings.recipe import RECIPE_SCHEMA
from ddlbench.settings.study import BATCH, REQUIRED

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
| `references/<reference>.csv` | published numbers with their sources, drawn beside ours |

A file's name, without its suffix, is its name in other files: at most 100 letters, digits, `.`, `_` and `-`. A
key that is not listed here is refused, and so are a key given twice and a value that is not allowed; the message
names the file, the key, the value and what is allowed. `python -m ddlbench.plan <study> <machine>` checks
the files and lists the runs without starting any.

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
python -m ddlbench.plan demo <your machine>
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

REFERENCES = """\
## References

CSV files with one published number per row. `model`, `framework`, `loader`, `workers`, `global_batch` and
`schedule` say which run it belongs to, empty where it does not matter; `quantity`, `relation` (`approx`,
`above`, `below`), `value` and `unit` are the number as it was published, `source` is where. A number
without a source does not belong here. `aach2023-kernels.csv` keeps the columns of that paper's Table 2.
"""


def page() -> str:
    """The text of config/README.md."""
    study = schema("study")
    block = study["$defs"]["block"]["properties"]
    own = {key: value for key, value in study["properties"].items() if key not in block}
    figure = study["properties"]["figures"]["additionalProperties"]
    return "\n".join(
        [
            INTRO,
            _table(schema("config")),
            DATA,
            _table(schema("config")["properties"]["data"]),
            CHECKPOINT,
            _table(schema("config")["properties"]["checkpoint"]),
            "Keys of `what_if`:\n",
            _table(schema("config")["properties"]["what_if"]),
            STUDY,
            "Keys of the top level only:\n",
            _table({**study, "properties": own}),
            "Keys of `audit`:\n",
            _table(own["audit"]),
            "Keys of `control`:\n",
            _table({**own["control"], "$defs": study["$defs"]}),
            "Keys of `inference`:\n",
            _table({**own["inference"], "$defs": study["$defs"]}),
            "Keys of `records`:\n",
            _table({**own["records"], "$defs": study["$defs"]}),
            "Keys of a block, or of the top level for all blocks; required in one of the two places:\n",
            _table(
                {**study, "properties": block, "required": REQUIRED},
                {key: f"required: this or `{other}`" for key, other in zip(BATCH, BATCH[::-1], strict=True)},
            ),
            "Keys of `measure`:\n",
            _table({**block["measure"], "$defs": study["$defs"]}),
            "Keys of `interrupt`:\n",
            _table(block["interrupt"]),
            "Keys of a figure:\n",
            _table({**figure, "$defs": study["$defs"]}),
            OPTIONS,
            *(text for name in registry.members("frameworks") for text in _options(name)),
            MACHINE,
            _table(MACHINE_KEYS),
            "Keys of `preflight`:\n",
            _table(MACHINE_KEYS["properties"]["preflight"]),
            "Keys of each of `partitions`:\n",
            _table(MACHINE_KEYS["properties"]["partitions"]["items"]),
            RECIPE,
            _table(RECIPE_SCHEMA),
            "Keys of each row of `by_batch`:\n",
            _table(RECIPE_SCHEMA["properties"]["by_batch"]["items"]),
            REFERENCES.rstrip("\n"),
        ]
    )


def _options(framework: str) -> tuple[str, str]:
    """A framework's options: a heading and a table."""
    options = registry.options(framework)
    if not options:
        return f"`{framework}` has no options.\n", ""
    return f"Options of `{framework}`:\n", _table({"properties": options})


def _table(of: dict[str, Any], defaults: dict[str, str] | None = None) -> str:
    """One row per key; `defaults` are texts for keys whose default the schema does not say."""
    lines = ["| key | meaning | allowed | default |", "|---|---|---|---|"]
    for key, rules in of["properties"].items():
        if key in of.get("required", ()):
            default = "required"
        elif "default" in rules:
            default = f"`{json.dumps(rules['default'])}`"
        else:
            default = (defaults or {}).get(key, "left out")
        lines.append(f"| `{key}` | {rules['description']} | {_allowed(rules, of)} | {default} |")
    return "\n".join(lines) + "\n"


def _allowed(rules: dict[str, Any], of: dict[str, Any]) -> str:
    """What a value may be, in words."""
    rules = _resolved(rules, of)
    if "enum" in rules:
        return ", ".join(f"`{'null' if value is None else value}`" for value in rules["enum"])
    first, *others = [rules["type"]] if isinstance(rules["type"], str) else rules["type"]
    text = TYPES[first]
    if first == "string" and "pattern" in rules:
        text = "a name" if rules["pattern"] == NAMED else f"text matching `{rules['pattern']}`"
    bounds = {"minimum": "at least", "exclusiveMinimum": "more than", "maximum": "at most"}
    bounds["exclusiveMaximum"] = "less than"
    text += "".join(f", {words} {rules[rule]}" for rule, words in bounds.items() if rule in rules)
    if first == "array":
        text += _of(rules["items"], of)
    if first == "object":
        keys = rules.get("propertyNames", {}).get("enum", ())
        text += "".join(f"{' and' if key == keys[-1] else ','} `{key}`" for key in keys).replace(",", " of", 1)
        if rules.get("additionalProperties"):  # not if it is absent or false
            text += _of(rules["additionalProperties"], of)
    return ", or ".join([text, *(TYPES[name] for name in others)])


def _of(values: dict[str, Any], of: dict[str, Any]) -> str:
    """What the values of a list or mapping may be; nothing if they have a table of their own."""
    return "" if "properties" in _resolved(values, of) else f", each {_allowed(values, of)}"


def _resolved(rules: dict[str, Any], of: dict[str, Any]) -> dict[str, Any]:
    """The rules with those that `$ref` points to."""
    if "$ref" not in rules:
        return rules
    shared: dict[str, Any] = of["$defs"][rules["$ref"].rsplit("/", 1)[-1]]
    return rules | shared


if __name__ == "__main__":
    print(page())
