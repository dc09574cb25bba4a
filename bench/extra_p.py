#!/usr/bin/env python
"""Extra-P's predictions, by its own Python: `bench/prediction.py --extrap PYTHON` asks this file.

Extra-P pins another numpy than ddlbench and brings Qt along, so it has an environment of its own:
    python -m venv extrap && extrap/bin/pip install extrap==4.2.5

It reads a JSON list of [workers, seconds, asked worker count] from its standard input and writes a list of seconds,
null where it makes no model. Extra-P needs five points; its model is the default one, of a single parameter.
"""

from __future__ import annotations

import json
import logging
import sys


def main() -> None:
    from extrap.entities.callpath import Callpath
    from extrap.entities.coordinate import Coordinate
    from extrap.entities.measurement import Measurement
    from extrap.entities.metric import Metric
    from extrap.modelers.single_parameter.basic import SingleParameterModeler

    logging.disable(logging.WARNING)
    cases = json.load(sys.stdin)
    asked = [
        [
            Measurement(Coordinate(count), Callpath("step"), Metric("time"), [value])
            for count, value in zip(workers, seconds, strict=True)
        ]
        for workers, seconds, _ in cases
    ]
    modeler = SingleParameterModeler()
    models = modeler.model(asked)
    made = [
        None if model is None else float(model.hypothesis.function.evaluate(at))
        for model, (_, _, at) in zip(models, cases, strict=True)
    ]
    json.dump(made, sys.stdout)


if __name__ == "__main__":
    main()
