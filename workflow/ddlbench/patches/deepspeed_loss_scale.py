"""DeepSpeed 0.19, which makes a loss scaler only under an autocast of its own; here the loop's
autocast is on.

Under ZeRO a scaler of DeepSpeed's kind is needed: torch's looks at this rank's shard only,
DeepSpeed's hears of an overflow on any rank. Like torch's it begins with 2**16, halved after an
overflow and doubled after 2000 steps without.

Upstream (deepspeedai/DeepSpeed): `torch_autocast` is the only way to a scaler for float32 weights,
and it enters an autocast around the whole model. A key that gives the engine a scaler alone, or one
to hand it over, would do.
"""

from typing import Any

from ddlbench import patches

STATE = ("cur_scale", "cur_iter", "last_overflow_iter", "cur_hysteresis")


def give(engine: Any, scaler: Any, zero: Any) -> None:
    """Let an engine scale losses, by torch's `scaler` or by one of its own under ZeRO. Raises
    ReleaseError.
    """
    patches.only_for("deepspeed", ("0.19",), "deepspeed_loss_scale")
    if zero is None:
        engine.torch_autocast_z0_gradscaler = scaler
        return
    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler

    zero.loss_scaler = DynamicLossScaler(
        2.0**16, 2000, 2.0**-24, 1, False, raise_error_at_min_scale=False
    )
    zero.dynamic_loss_scale = zero.check_grad_overflow = True


def state(zero: Any) -> dict[str, Any]:
    """Return all that the scaler under ZeRO changes."""
    return {name: getattr(zero.loss_scaler, name) for name in STATE}


def load(zero: Any, saved: dict[str, Any]) -> None:
    """Put back what `state` returned."""
    for name, value in saved.items():
        setattr(zero.loss_scaler, name, value)
