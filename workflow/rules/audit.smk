# What makes comparisons within a study unfair (docs/audit.md): a table, printed when the workflow ends. `ddlbench audit`
# ends with exit code 1 on errors.
from ddlbench.audit import AUDITED as audit_tables

AUDITED = [f"{TABLES}/{name}.parquet" for name in audit_tables if name != "submissions" or name in SHEETS]
AUDIT_CODE = [
    os.path.relpath(path) for room in ("audit", "audit/rules") for path in sorted(registry.PACKAGE.glob(f"{room}/*.py"))
]


rule audit_table:
    input:
        tables=AUDITED,
        code=AUDIT_CODE,
        convergence=snakefile.CONVERGENCE,
    output:
        f"{TABLES}/audit.csv",
    log:
        layout.study_log(PLAN.home, "audit-table"),
    message:
        f"audit of {STUDY.name}: {{output}}"
    script:
        "../scripts/audit.py"
