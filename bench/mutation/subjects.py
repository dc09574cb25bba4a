"""Which unit tests try a module, and which function holds one of its lines."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

# The unit test files of these modules. Of others: those that import them, or that ALSO names, at
# most FILES.
TESTS = {
    "analysis/significance.py": ("test_statistics.py",),
    "analysis/intervals.py": ("test_statistics.py",),
    "analysis/warm_up.py": ("test_statistics.py",),
    "analysis/outliers.py": ("test_statistics.py", "test_outliers.py"),
    "analysis/drift.py": ("test_statistics.py",),
    "analysis/over_settings.py": ("test_over_settings.py",),
    "core/schedule.py": ("test_recipe.py",),
    "train/loaders/_sampling.py": ("test_loaders.py", "test_forms.py"),
    "analysis/price.py": ("test_price.py", "test_budget.py"),
    "plan/launch.py": ("test_launch.py",),
    "plan/stale.py": ("test_stale.py", "test_commands.py"),
    "records/mlperf.py": ("test_mlperf.py",),
    "records/_mllog.py": ("test_mlperf.py",),
    "records/_times.py": ("test_mlperf.py",),
    "analysis/times.py": ("test_statistics.py", "test_measure.py", "test_losses.py"),
    "core/spec.py": ("test_plan.py", "test_recipe.py", "test_slurm_submission.py"),
    "core/recipe.py": ("test_recipe.py", "test_recipe_sources.py", "test_plan.py"),
    "settings/machine.py": ("test_own_cluster.py", "test_launch.py", "test_bad_input.py"),
    "settings/study.py": ("test_studies.py", "test_plan.py", "test_bad_input.py"),
    "plan/runs.py": ("test_plan.py", "test_order.py", "test_studies.py"),
}
ALSO = {
    "audit/rules/": ("test_audit.py",),
    "audit/": ("test_audit.py",),
    "analysis/sheets/": ("test_columns.py", "test_collect.py"),
    "analysis/prediction/": ("test_prediction.py", "test_predictions.py"),
    "plan/kinds/": (
        "test_kinds.py",
        "test_plan.py",
        "test_plan_inference.py",
        "test_plan_programs.py",
    ),
    "records/": ("test_trust.py",),
    "settings/": ("test_bad_input.py", "test_reading.py"),
}
FILES = 4  # those named like the module, then those that import least, whose subject it is


def tests_of(module: str, unit: Path) -> list[str]:
    """Return the names of the unit test files that try a module."""
    if module in TESTS:
        return [*TESTS[module]]
    dotted = "ddlbench." + module.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    imported = {path.name: _imported(path) for path in sorted(unit.glob("test_*.py"))}
    also = [name for prefix, names in ALSO.items() if module.startswith(prefix) for name in names]
    direct = [name for name, names in imported.items() if dotted in names and name not in also]
    stem = Path(module).stem.strip("_")
    direct.sort(
        key=lambda name: (stem not in name, sum(of.startswith("ddlbench") for of in imported[name]))
    )
    return [*dict.fromkeys([*direct[:FILES], *(name for name in also if name in imported)])]


def _imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def function_lines(code: str, line: int) -> range:
    """Return the lines of the body of the innermost function around a line; none outside of
    functions.
    """
    around = _around(code, line)
    return (
        range(around[-1].body[0].lineno, (around[-1].end_lineno or 0) + 1) if around else range(0)
    )


def outermost(code: str, line: int) -> int | None:
    """Return the first line of the outermost function whose body holds this line, decorators
    included.
    """
    around = _around(code, line)
    return (
        min([around[0].lineno, *(node.lineno for node in around[0].decorator_list)])
        if around
        else None
    )


@cache
def _parsed(code: str) -> list[ast.AST]:
    return [*ast.walk(ast.parse(code))]


def _around(code: str, line: int) -> list[ast.FunctionDef]:
    """Return the functions whose body holds this line, the outermost first."""
    return [
        node
        for node in _parsed(code)  # by breadth
        if isinstance(node, ast.FunctionDef)
        and node.body[0].lineno <= line <= (node.end_lineno or 0)
    ]
