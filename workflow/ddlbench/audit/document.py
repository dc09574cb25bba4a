"""docs/audit.md from the rules: each rule's docstring, what it needs, what to do, who asks for it.

`python -m ddlbench.audit.document > docs/audit.md` writes it.
"""

from collections.abc import Iterable

from ddlbench.audit import SEVERITIES, Rule, _columns, all_rules
from ddlbench.audit.finding_rows import COLUMNS

INTRO = """\
# The audit: what makes a comparison worth less than it looks

Made from the rules in `workflow/ddlbench/audit/rules` by `python -m ddlbench.audit.document > docs/audit.md`; do not
edit.

```sh
ddlbench audit --profile profiles/local                                # the study: findings, exit code 1 on errors
ddlbench audit results/demo/local/tables                               # any folder of tables
```

Each rule looks at tables only; overlapping-runs also at when the records of all studies were made (`results/runs`).
A study's findings are in `results/<study>/<machine>/tables/audit.csv`, and errors and warnings are printed at the end
of a run of the workflow. The last table of this page has every column of a run, with the rules that look at it, or why
none does.
Runs that are alike in machine, data set, model, recipe, schedule and epochs are compared; framework, loader, number of
workers and repeat are what one compares.

- An **error** breaks a comparison: the numbers must not be compared.
- A **warning** must be stated with the numbers.
- A **note** is something a reader should know.
- **Not checked** says which column a rule lacked, and in how many rows. A rule that was not checked has not passed.
  What nothing could have filled (no meter, another kind of record) is not counted.

The table `audit.csv`:

| column | meaning |
|---|---|
"""


def page(rules: Iterable[Rule]) -> str:
    """Return the complete page about these rules."""
    rules = list(rules)
    lines = [INTRO.rstrip("\n"), *(f"| `{column.name}` | {column.means} |" for column in COLUMNS)]
    for severity in SEVERITIES:
        of_severity = [rule for rule in rules if rule.severity == severity]
        lines += ["", f"## {severity.capitalize()}s: {len(of_severity)} rules"]
        for rule in of_severity:
            needs = ", ".join(f"`{need}`" for need in rule.needs) or "nothing in particular"
            lines += ["", f"### {rule.name}", "", rule.about, ""]
            lines += [
                f"- What to do: {rule.what_to_do}.",
                f"- Needs: {needs}.",
                f"- Source: {rule.source}.",
            ]
    lines += [
        "",
        "## Every column of table `runs`, and who looks at it",
        "",
        *_columns.lines(rules),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(all_rules().values()), end="")
