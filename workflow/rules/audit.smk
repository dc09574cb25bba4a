# What makes comparisons within a study unfair (docs/audit.md): a table, printed when the workflow ends. `snakemake audit`
# ends with exit code 1 on errors.
from ddlbench.audit import AUDITED as audit_tables

AUDITED = [layout.table("{study}", name) + ".parquet" for name in audit_tables]
AUDIT_CODE = [os.path.relpath(path) for path in sorted(registry.PACKAGE.glob("audit/*.py"))]


rule audit_table:
    input:
        tables=AUDITED,
        code=AUDIT_CODE,
        convergence=snakefile.CONVERGENCE,
        verdicts=layout.table("{study}", "verdicts") + ".csv",
    output:
        layout.table("{study}", "audit") + ".csv",
    log:
        layout.study_log("{study}", "audit-table"),
    message:
        "audit of {wildcards.study}: {output}"
    script:
        "../scripts/audit.py"


rule audit:
    input:
        f"{TABLES}/audit.csv",
    log:
        layout.study_log(STUDY.name, "audit"),
    message:
        f"audit: what makes comparisons in {STUDY.name} unfair"
    shell:
        "python -m ddlbench.audit {input:q} | tee {log:q}"
