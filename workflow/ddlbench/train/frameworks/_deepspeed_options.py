"""DeepSpeed's options: what a study can set, what does not go together, and the configuration that
it is given.

`deepspeed.py` drives it. Nothing here imports DeepSpeed or torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddlbench.core.recipe import needs_whole_layers
from ddlbench.train.frameworks import _common
from ddlbench.train.frameworks._common import flag, number, one_of

if TYPE_CHECKING:
    from ddlbench.core.spec import RunSpec
    from ddlbench.train.frameworks import Options

# By our name: the name in DeepSpeed's configuration, the recipe's optimizer that it replaces, and
# the setting that says from which step on it compresses.
ONE_BIT_OPTIMIZERS = {
    "1-bit-adam": ("OneBitAdam", "adamw", "freeze_step"),
    "1-bit-lamb": ("OneBitLamb", "lamb", "freeze_step"),
    "0/1-adam": ("ZeroOneAdam", "adamw", "var_freeze_step"),
}
# Counted on mnist5k with recipe small-adam: the variance of 25 % of LeNet's weights is 0 after 5
# steps, of 13 % after 124; of no weight of timm's test_vit. deepspeed.ai/tutorials/onebit-adam
# speaks of gradients that are always zero.
ONE_BIT_DIVERGES = (
    "A weight that had no gradient before freeze_step, behind a ReLU that is never on, has the"
    " variance 0, by which its steps are divided: soon after, the loss is not finite. A quarter of"
    " lenet's weights are such, none of test_vit's."
)
OPTIONS: Options = _common.OPTIONS | {
    "zero_stage": one_of(
        "What ZeRO splits over ranks. 0: nothing; 1: the optimizer's state; 2: also gradients; 3:"
        " also parameters.",
        *range(4),
    ),
    "bucket_mb": number(
        "With zero_stage 1, 2 or 3: at most so many MiB of gradients are reduced together."
        " DeepSpeed's own default is 5e8 numbers, 1907 MiB.",
        2000,
        exclusiveMinimum=0,
    ),
    "overlap_comm": flag(
        "With zero_stage 1 or 2: reduce each full bucket of gradients while the backward pass goes"
        " on. DeepSpeed's own default is false there and true with zero_stage 3, which is left so."
    ),
    "offload": one_of(
        "What ZeRO keeps in the host's memory. optimizer: its state, with zero_stage 1, 2 or 3;"
        " parameters: these too, with zero_stage 3. The recipe's optimizer then works there: on GPU"
        " machines on the cores that loaders leave.",
        "none",
        "optimizer",
        "parameters",
    ),
    "compression": one_of(
        "Train with an optimizer of DeepSpeed that sends one bit per number. 1-bit-adam and"
        " 0/1-adam replace a recipe's adamw, 1-bit-lamb its lamb; none of them corrects bias. On"
        f" GPUs they need CuPy. {ONE_BIT_DIVERGES}",
        "none",
        *ONE_BIT_OPTIMIZERS,
        # said where a loss is no number, of any option that has this key
        diverges=ONE_BIT_DIVERGES,
    ),
    "freeze_step": number(
        "Steps until the one-bit optimizers freeze the variance and begin to compress. If that is"
        " too early, the loss rises.",
        1000,
        "integer",
        minimum=1,
    ),
    "progressive_layer_dropping": flag(
        "Leave out blocks of a vision transformer at random: more of the deeper blocks, and more as"
        " training goes on (arXiv:2010.13369)."
    ),
    "layer_dropping_theta": number(
        "The mean share of blocks that progressive layer dropping keeps in the end.",
        0.5,
        exclusiveMinimum=0,
        maximum=1,
    ),
    "layer_dropping_gamma": number(
        "How fast progressive layer dropping gets there, per step. The paper takes 100 divided by"
        " the number of steps.",
        0.001,
        minimum=0,
    ),
    "flops_profiler": flag(
        "Write what DeepSpeed's profiler counts of each module in the second step. That step is"
        " slow."
    ),
    "comms_logger": flag(
        "Write DeepSpeed's table of messages, since the run last started, to comms.txt. Every step"
        " gets slower, because each message is waited for."
    ),
}


def refuses(spec: RunSpec) -> str | None:
    """Return why this run cannot be trained, or None; the text names the option and what it may
    be.
    """
    stage, offload, compression = (
        spec.option(name) for name in ("zero_stage", "offload", "compression")
    )
    recipe, dropping = spec.recipe, spec.option("progressive_layer_dropping")
    if spec.option("bucket_mb") != OPTIONS["bucket_mb"]["default"] and stage == 0:
        return "option bucket_mb: zero_stage 0 has buckets of its own; needs zero_stage 1, 2 or 3"
    if spec.option("overlap_comm") and stage not in (1, 2):
        return (
            f"option overlap_comm: needs zero_stage 1 or 2, not {stage}; zero_stage 3 overlaps by"
            " itself"
        )
    if offload == "optimizer" and stage == 0:
        return "option offload: optimizer needs zero_stage 1, 2 or 3"
    if offload == "parameters" and stage != 3:
        return f"option offload: parameters needs zero_stage 3, not {stage}"
    if stage and needs_whole_layers(recipe.optimizer):
        flat = f"{stage} lays layers end to end, and {recipe.optimizer} needs each"
        return f"option zero_stage: {flat}; allowed: 0"
    if recipe.precision == "fp16" and (stage == 3 or offload != "none"):
        return (
            "option zero_stage: precision fp16 scales losses, which works with 0, 1 and 2 without"
            " offload"
        )
    if compression != "none":
        meant = ONE_BIT_OPTIMIZERS[compression][1]
        if recipe.optimizer != meant:
            return (
                f"option compression: {compression} needs a recipe with optimizer {meant}, not"
                f" {recipe.optimizer}"
            )
        if stage:
            return f"option compression: {compression} needs zero_stage 0, not {stage}"
        if recipe.precision == "fp16" or recipe.clip_norm is not None or dropping:
            what = (
                "precision fp16, clip_norm and progressive_layer_dropping need gradients averaged"
                " over ranks"
            )
            return (
                f"option compression: {what}, which {compression} does not make; allowed here: none"
            )
    if dropping and not spec.model.startswith(("vit_", "test_vit")):
        need = "needs a vision transformer (a model vit_... or test_vit...)"
        return f"option progressive_layer_dropping: {need}, not {spec.model}"
    if dropping and (stage == 3 or spec.option("compile")):
        return "option progressive_layer_dropping: needs zero_stage 0, 1 or 2, and compile false"
    return _common.refuses(spec)


def settings(spec: RunSpec, numbers: int) -> dict[str, Any]:
    """Return DeepSpeed's configuration for a run; what the recipe owns is off or the recipe's.

    `numbers`: the model's size.
    """
    recipe, offload = spec.recipe, spec.option("offload")
    zero: dict[str, Any] = {
        "stage": spec.option("zero_stage"),
        # In numbers, and allocated at once: never more than the complete model.
        "reduce_bucket_size": max(1, min(round(spec.option("bucket_mb") * 2**20 / 4), numbers)),
    }
    # What is not named is DeepSpeed's own default. No options are contiguous_gradients, without
    # which DeepSpeed 0.19.6 trains something else (docs/measurements/deepspeed-features.md), and
    # allgather_bucket_size, which has no effect.
    if spec.option("overlap_comm"):
        zero["overlap_comm"] = True
    if spec.device == "cpu":
        # DeepSpeed starts many gathers and waits for the last; only on GPUs are the others over
        # then.
        zero["stage3_allgather_sequential"] = True
    if offload != "none":
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": spec.device == "cuda"}
    if offload == "parameters":
        zero["offload_param"] = {"device": "cpu", "pin_memory": spec.device == "cuda"}
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": max(1, spec.batch_per_worker // recipe.accumulation),
        "gradient_accumulation_steps": recipe.accumulation,
        "zero_optimization": zero,
        # of the recipe's optimizers, `refuses` names those that cannot
        "zero_allow_untested_optimizer": True,
        # the recipe's optimizer, not one that is compiled at the first start
        "zero_force_ds_cpu_optimizer": False,
        # DeepSpeed >= 0.19.4 clips at 1.0 unless it is configured otherwise. Its training would
        # then differ from the others'.
        "gradient_clipping": recipe.clip_norm or 0.0,
        "steps_per_print": 10**9,
        # Its throughput timer waits for the GPU at the beginning and at the end of each step.
        "timers": {"throughput": {"enabled": False}},
    }
    if spec.option("compression") != "none":
        kind, _, freeze = ONE_BIT_OPTIMIZERS[spec.option("compression")]
        backend = "nccl" if spec.device == "cuda" else "compressed"
        parameters = {
            "lr": recipe.base_lr,
            freeze: spec.option("freeze_step"),
            "comm_backend_name": backend,
        }
        config["optimizer"] = {"type": kind, "params": parameters}
    if spec.option("progressive_layer_dropping"):
        theta, gamma = spec.option("layer_dropping_theta"), spec.option("layer_dropping_gamma")
        config["progressive_layer_drop"] = {"enabled": True, "theta": theta, "gamma": gamma}
    if spec.option("comms_logger"):
        config["comms_logger"] = {
            "enabled": True,
            "verbose": False,
            "prof_all": True,
            "debug": False,
        }
    return config
