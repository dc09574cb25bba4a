"""Models that people wrote, in a rank: `settings/own_models.py` has found their source, here it is
imported and called.

Whatever goes wrong in it is one line that names the model's file and the line in it.
"""

import importlib
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import nn

from ddlbench.core.formatting import gigabytes
from ddlbench.patches import torchvision_operators
from ddlbench.settings.own_models import OwnModel, find


class ModelError(RuntimeError):
    """The error that a model cannot be used; the line names its file and the line in it."""


class RefusedError(ModelError):
    """The error of a model that fails on every device."""


class HangError(BaseException):
    """The error that a model does not come to an end.

    It passes through a model's own `except Exception`.
    """


# A file may end the process instead of raising an error.
FAULTS = (Exception, SystemExit, HangError)


def build(name: str, classes: int, image_size: int, sha256: str | None = None) -> nn.Module:
    """Build the module that the function returns.

    Raises ModelError if it does not, or if the source is not the planned one (`sha256`);
    ConfigError as `find` does.
    """
    source = find(name)
    if sha256 not in (None, source.sha256):
        raise ModelError(
            f"{source.files[0]}: model {name}: was changed since the run was planned; start again"
        )
    try:
        model = getattr(_imported(source), source.function)(classes, image_size)
    except FAULTS as error:
        raise _explained(source, error) from error
    if not isinstance(model, nn.Module):
        raise _explained(source, TypeError(f"returns {type(model).__name__}, no torch.nn.Module"))
    return model


def _imported(source: OwnModel) -> Any:
    """Import the module of a model."""
    torchvision_operators.apply()  # a model may import it
    if str(source.root) not in sys.path:
        sys.path.append(
            str(source.root)
        )  # last: a file there must not hide a package that others import
    written, sys.dont_write_bytecode = (
        sys.dont_write_bytecode,
        True,
    )  # old bytecode could hide a change
    try:
        module = importlib.import_module(source.module)
    finally:
        sys.dont_write_bytecode = written
    if Path(str(module.__file__)).resolve() != source.files[0].resolve():
        raise ImportError(
            f"Python imports {module.__file__} as {source.module}; rename one of the two"
        )
    return module


def complaint(name: str, classes: int, image_size: int, timeout_s: float) -> str | None:
    """Return why a model cannot be trained, in one line; None if it can.

    It is asked on the meta device, which takes no memory; a model that looks at values is asked on
    the CPU. Both together may take `timeout_s`. It is called in a process's main thread, the only
    one that hears signals.
    """

    def stop(number: int, frame: object) -> None:
        raise HangError(
            f"it had not ended after {timeout_s:.0f} s; raise start_timeout_s in the machine's file"
        )

    reason, former = None, signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, timeout_s)
    try:
        for device in ("meta", "cpu"):
            try:
                _ask(name, classes, image_size, device)
            except RefusedError as error:
                return " ".join(str(error).split())
            except FAULTS as error:
                reason = " ".join(str(error).split())
                if isinstance(error.__cause__, HangError):
                    return reason
            else:
                return None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
    return reason


def _ask(name: str, classes: int, image_size: int, device: str) -> None:
    """Raise ModelError unless the model can be trained: a forward and a backward pass over two
    pictures.
    """
    with torch.device(device):
        model, pictures = (
            build(name, classes, image_size).train(),
            torch.rand(2, 3, image_size, image_size),
        )
    source = find(name)
    if refused := unfit(model):
        raise RefusedError(str(_explained(source, TypeError(refused), model)))
    try:
        scores = model(pictures)
        wrong = _output_fault(model, pictures, scores, classes)
        if wrong is None:
            scores.sum().backward()
            unused = [
                key
                for key, weight in model.named_parameters()
                if weight.requires_grad and weight.grad is None
            ]
            if unused:
                wrong = (
                    f"weight {unused[0]} does not contribute to the scores; leave it out, or set"
                    " requires_grad = False"
                )
    except FAULTS as error:
        raise _explained(source, error, model) from error
    if wrong:
        raise _explained(source, TypeError(wrong), model)


def unfit(model: nn.Module) -> str | None:
    """Return which of a model's weights no framework can train, or that they do not fit into
    memory; None if nothing is wrong.
    """
    size = 0
    for name, weight in model.named_parameters():
        if isinstance(weight, nn.parameter.UninitializedParameter):
            return (
                f"weight {name} has no shape before the first pictures (a lazy layer); give its"
                " sizes"
            )
        if weight.requires_grad and weight.dtype != torch.float32:
            return (
                f"weight {name} is {weight.dtype}; allowed: torch.float32, of which the recipe's"
                " precision makes others"
            )
        size += weight.nelement() * weight.element_size()
    memory = psutil.virtual_memory().total
    if size > memory:
        return (
            f"its weights take {gigabytes(size)}, but this node has {gigabytes(memory)} of memory"
        )
    return None


def _output_fault(
    model: nn.Module, pictures: torch.Tensor, scores: Any, classes: int
) -> str | None:
    """Return what is wrong with the scores of a batch of pictures, and with what the model did to
    it.
    """
    if not isinstance(scores, torch.Tensor) or not scores.is_floating_point():
        kind = scores.dtype if isinstance(scores, torch.Tensor) else type(scores).__name__
        return f"returns {kind}; allowed: a tensor of floating-point scores"
    if scores.shape != (len(pictures), classes):
        return (
            f"gives scores of shape {(*scores.shape,)} for {len(pictures)} pictures; allowed:"
            f" (pictures, {classes})"
        )
    if pictures._version:
        return (
            "changes the pictures that it is given; loaders use a batch again: let it change a copy"
        )
    if not any(weight.requires_grad for weight in model.parameters()):
        return "has no weights that can be trained"
    return None if scores.requires_grad else "its scores depend on no weight that can be trained"


def _explained(source: OwnModel, error: BaseException, model: Any = None) -> ModelError:
    """Return an error with the last line of the model's files that it came through; else where the
    model, or its function, is defined.
    """
    files = {str(file): file for file in source.files}
    at = [
        (files[f.filename], f.lineno)
        for f in traceback.extract_tb(error.__traceback__)
        if f.filename in files
    ]
    if isinstance(error, SyntaxError) and error.filename in files:
        at.append((files[error.filename], error.lineno))
    function = getattr(sys.modules.get(source.module), source.function, None)
    codes = [
        getattr(call, "__code__", None) for call in (function, getattr(model, "forward", None))
    ]
    defined = [
        (files[c.co_filename], c.co_firstlineno) for c in codes if c and c.co_filename in files
    ]
    file, line = (at or defined or [(source.files[0], 1)])[-1]
    what = (
        error
        if isinstance(error, TypeError) and error.__traceback__ is None
        else f"{type(error).__name__}: {error}"
    )
    return ModelError(f"{file}:{line}: model {source.name}: {' '.join(str(what).split())[:300]}")
