"""MLflow's tracking store on SQLite: one experiment per study, one run of MLflow's per run.

mlflow ui --backend-store-uri sqlite:///{folder}/mlflow.db
"""

from pathlib import Path
from typing import Any

import pandas as pd

from ddlbench.outlook.exports import curves, results, settings_by_run

PACKAGE = "mlflow==3.17.2"


def write(document: dict[str, Any], runs: pd.DataFrame, epochs: pd.DataFrame, folder: Path) -> None:
    """Write the runs: settings are parameters, quantities and curves are metrics. Those of epochs
    have names of their own: MLflow shows the last value of a metric as that of the run.
    """
    from mlflow.entities import Metric, Param
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{folder}/mlflow.db")
    experiment = client.create_experiment(document["study"])
    by_run = settings_by_run(document)
    for _, row in runs.iterrows():
        at = _milliseconds(row["started_s"])
        run = client.create_run(
            experiment, start_time=at, run_name=row["run"], tags={"machine": document["machine"]}
        )
        values = [
            *((name, value, 0) for name, value in results(document, row).items()),
            *((f"epoch/{name}", value, n) for name, value, n in curves(epochs, row["run"])),
        ]
        client.log_batch(
            run.info.run_id,
            metrics=[Metric(name, value, at, step) for name, value, step in values],
            params=[Param(name, str(value)) for name, value in by_run[row["run"]].items()],
        )
        client.set_terminated(run.info.run_id, end_time=at + _milliseconds(row["run_s"]))


def _milliseconds(seconds: float) -> int:
    """Return milliseconds for seconds; 0 where others' records do not say."""
    return 0 if pd.isna(seconds) else int(1000 * seconds)
