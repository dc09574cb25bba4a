"""docs/audit.md from the rules: each rule's docstring, what it needs, what to do, who asks for it.

`python -m ddlbench.audit.document > docs/audit.md` writes it.
"""

from ddlbench.audit import SEVERITIES, all_rules
from ddlbench.audit._findings import COLUMNS

INTRO = """\
# The audit: what makes a comparison worth less than it looks

Made from the rules in `workflow/ddlbench/audit/rules` by `python -m ddlbench.audit.document > docs/audit.md`; do not
edit.

```sh
ddlbench audit --profile profiles/local                                # the study: findings, exit code 1 on errors
ddlbench audit results/demo/local/tables                               # any folder of tables
ddlbench audit --published config/references/aach2023.csv              # numbers that others published
```

Each rule looks at tables only, so it can be asked about anybody's numbers. A study's findings are in
`results/<study>/<machine>/tables/audit.csv`, and errors and warnings are printed at the end of a run of the workflow.
Runs that are alike in machine, data set, model, recipe, schedule and epochs are compared; framework, loader, number of
workers and repeat are what one compares.

- An **error** breaks a comparison: the numbers must not stand side by side.
- A **warning** has to be said beside the numbers.
- A **note** is what a reader should know.
- **Not checked** says which column a rule lacked, and in how many rows. A rule that was not checked has not passed.
  What nothing could have filled (no meter, another kind of record) is not counted.

`audit: {fail_on: error}` in a study puts a mark that names the rule on each figure whose own runs break one.

Published numbers are csv files: one row per number with the columns of `config/references/aach2023.csv` (`quantity`,
`value`, `relation`, `workers`, ...), or one row per measurement with columns that end in `_percent`. Columns that make
more rules answer: `ref_workers` and `base_images_per_s` (of the base of a speed-up), `ceiling_images_per_s` (what the
base's hardware can do), `per` (`sum` or `wall`, of GPU hours), `note` (why a cell is empty).

The table `audit.csv`:

| column | meaning |
|---|---|
"""


def page() -> str:
    """The whole page."""
    lines = [INTRO.rstrip("\n"), *(f"| `{column.name}` | {column.means} |" for column in COLUMNS)]
    for severity in SEVERITIES:
        of_severity = [rule for rule in all_rules().values() if rule.severity == severity]
        lines += ["", f"## {severity.capitalize()}s: {len(of_severity)} rules"]
        for rule in of_severity:
            needs = ", ".join(f"`{need}`" for need in rule.needs) or "nothing in particular"
            lines += ["", f"### {rule.name}", "", rule.about, ""]
            lines += [f"- What to do: {rule.what_to_do}.", f"- Needs: {needs}.", f"- Source: {rule.source}."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
