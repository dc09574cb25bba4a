# What makes comparisons within a study unfair (docs/audit.md): a table, printed when the workflow ends. `ddlbench audit`
# ends with exit code 1 on errors.
from ddlbench.audit import AUDITED as audit_tables

AUDITED = [
    f"{TABLES}/{name}.parquet" for name in audit_tables if name != "submissions" or name in SHEETS
]


rule audit_table:
    input:
        tables=AUDITED,
        convergence=snakefile.CONVERGENCE,
    output:
        f"{TABLES}/audit.csv",
    log:
        layout.study_log(PLAN.home, "audit-table"),
    params:
        further=lambda wildcards: PLAN.further,
        sources=lambda wildcards: sources.of_script(
            "audit", snakefile.CONVERGENCE, *registry.PACKAGE.glob("audit/rules/*.py")
        ),
    message:
        f"audit of {STUDY.name}: {{output}}"
    script:
        "../scripts/audit.py"
