"""Event files of TensorBoard: one folder per run, with curves over epochs and what the run came to.

tensorboard --logdir {folder}
"""

from pathlib import Path
from typing import Any

import pandas as pd

from ddlbench.outlook.exports import curves, results, settings_by_run

PACKAGE = "tensorboard==2.21.0"


def write(document: dict[str, Any], runs: pd.DataFrame, epochs: pd.DataFrame, folder: Path) -> None:
    """Write the event files. Each run's settings are a line of text, as TensorBoard has no table of
    them without another package.
    """
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.text.metadata import create_summary_metadata
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboard.util.tensor_util import make_tensor_proto

    by_run = settings_by_run(document)
    for _, row in runs.iterrows():
        at, writer = float(row["started_s"]), EventFileWriter(str(folder / row["run"]))
        words = ", ".join(f"{name} {value}" for name, value in by_run[row["run"]].items())
        text = Summary.Value(tag="settings", tensor=make_tensor_proto([words.encode()], shape=[1]))
        text.metadata.CopyFrom(create_summary_metadata("settings", ""))
        writer.add_event(Event(wall_time=at, step=0, summary=Summary(value=[text])))
        ended = [(f"run/{name}", value, 0) for name, value in results(document, row).items()]
        for tag, value, step in [*curves(epochs, row["run"]), *ended]:
            scalar = Summary.Value(tag=tag, simple_value=value)
            writer.add_event(Event(wall_time=at, step=step, summary=Summary(value=[scalar])))
        writer.close()
