"""Train a GPT or a BERT of any size on tokens whose lowest possible loss is known: a program of a
user's own.

`python train.py --help` says what it takes. Started by ddlbench
(config/programs/language-model.yaml) or by torchrun; under Horovod by horovodrun. Its only word to
ddlbench is the recorder (three lines), which does nothing elsewhere.
"""

import argparse
import atexit
import contextlib
import json
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from markov import Markov

sys.path.append(str(Path(__file__).resolve().parents[2] / "recorder"))  # or: pip install ./recorder
from ddlbench_recorder import Recorder

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
MASKED = 0.15  # of BERT's tokens
# that the source draws from at most; larger vocabularies cost as much as they should, and are not
# used up
TOKENS = 1024
# Sizes of Devlin et al. 2018, Radford et al. 2019 and Brown et al. 2020.
SIZES = {
    "small": {},
    "bert-large": {"model": "bert", "layers": 24, "hidden": 1024, "heads": 16, "vocabulary": 30522},
    "gpt2-medium": {"model": "gpt", "layers": 24, "hidden": 1024, "heads": 16, "vocabulary": 50257},
    "gpt-1.3e9": {"model": "gpt", "layers": 24, "hidden": 2048, "heads": 16, "vocabulary": 50257},
    "gpt-2.7e9": {"model": "gpt", "layers": 32, "hidden": 2560, "heads": 32, "vocabulary": 50257},
}
# DeepSpeed's ways: stages of ZeRO, the optimizer's state on the host, progressive layer dropping.
# On the host PyTorch's fused AdamW updates, or DeepSpeed's own optimizer where the name ends with
# CPU_ADAM.
CPU_ADAM = "-cpu-adam"
ZERO = {"deepspeed": {"stage": 0}} | {f"zero-{stage}": {"stage": stage} for stage in (1, 2, 3)}
OFFLOAD = {
    f"{name}-offload": {**zero, "offload_optimizer": {"device": "cpu"}}
    for name, zero in [*ZERO.items()][1:]
}
OFFLOAD |= {f"{name}{CPU_ADAM}": zero for name, zero in OFFLOAD.items()}
# The optimizer's state on a disk of the node, --nvme. It needs libaio to be compiled, and was never
# run.
NVME = "zero-3-nvme"
OFFLOAD[NVME] = {"stage": 3, "offload_optimizer": {"device": "nvme"}}
ZERO |= OFFLOAD
ZERO |= {"pld": {"stage": 0}}
THETA = 0.5  # of layer dropping: the share of the last block that is kept in the end
SOON = 100  # gamma of layer dropping is this over the steps (Zhang and He 2020)


class Network(torch.nn.Module):
    """GPT (looks back only) or BERT (looks both ways) by its sizes: (batch, sequence) tokens to
    scores of each token.

    Blocks are PyTorch's, normalised first, and the scores share the embedding's weights: GPT-2's
    and BERT's sizes but for a few thousand weights. There is no dropout. Places begin as sinusoids,
    so that a block finds a token's neighbours: from small random numbers a BERT learns nothing in
    its first hundreds of steps.

    A GPT's last token stands where it is read; a BERT must first learn to look at its neighbours,
    from the 15 % of tokens that are masked. Of the small size, with batches of 32, its loss stays
    at ln 64 for 200 steps, and is 1.1 after 400. With batches of 8 it learns nothing in 200.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        self.causal = args.model == "gpt"
        self.dtype = DTYPES[args.precision]
        self.tokens = torch.nn.Embedding(args.vocabulary + 1, args.hidden)  # one more: BERT's mask
        self.places = torch.nn.Embedding(args.sequence, args.hidden)
        sizes = {
            "nhead": args.heads,
            "dim_feedforward": 4 * args.hidden,
            "dropout": 0.0,
            "activation": "gelu",
        }
        self.blocks = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(
                args.hidden, **sizes, batch_first=True, norm_first=True
            )
            for _ in range(args.layers)
        )
        self.norm = torch.nn.LayerNorm(args.hidden)
        torch.nn.init.normal_(self.tokens.weight, std=0.3)
        torch.nn.init.constant_(
            self.norm.weight, 8 / args.hidden**0.5
        )  # first scores are alike for all widths
        waves = 10_000 ** (-torch.arange(0, args.hidden, 2) / args.hidden)
        angles = torch.arange(args.sequence)[:, None] * waves
        self.places.weight.data = torch.cat([angles.sin(), angles.cos()], dim=1)
        self.passes = self.computed = 0  # passes of the network, and of its blocks

    def forward(
        self,
        tokens: torch.Tensor,
        labels: torch.Tensor,
        progressive_layer_drop: bool = False,
        pld_theta: float = 1.0,
    ) -> torch.Tensor:
        """The mean loss over labels, in nats per token; labels of -100 do not count.

        DeepSpeed says how many blocks are to be kept (Zhang and He 2020, algorithm 1). All ranks
        drop the same ones.
        """
        with torch.autocast(tokens.device.type, self.dtype, enabled=self.dtype != torch.float32):
            return self.loss(tokens, labels, pld_theta)

    def loss(self, tokens: torch.Tensor, labels: torch.Tensor, pld_theta: float) -> torch.Tensor:
        self.passes += 1
        draw = random.Random(self.passes)
        keep = [1 - place / len(self.blocks) * (1 - pld_theta) for place in range(len(self.blocks))]
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        length = tokens.shape[1]
        mask = (
            torch.nn.Transformer.generate_square_subsequent_mask(length, x.device, x.dtype)
            if self.causal
            else None
        )
        for block, likely in zip(self.blocks, keep, strict=True):
            if draw.random() < likely:
                self.computed += 1
                after = block(x, src_mask=mask, is_causal=self.causal)
                x = after if likely == 1 else x + (after - x) / likely
        scores = torch.nn.functional.linear(self.norm(x), self.tokens.weight)
        if self.causal:
            scores, labels = scores[:, :-1], labels[:, 1:]
        return torch.nn.functional.cross_entropy(scores.flatten(0, 1).float(), labels.flatten())


def batches(source: Markov, args: argparse.Namespace, rank: int):
    """`args.steps` batches of this rank: tokens and labels, (batch, sequence) each. Step and rank
    are in the seed.
    """
    for step in range(args.steps):
        draw = torch.Generator().manual_seed(args.seed * 1_000_003 + step * 4099 + rank)
        tokens = source.draw(args.batch_per_worker, args.sequence, draw)
        if args.model == "gpt":
            yield tokens, tokens
            continue
        masked = torch.rand(tokens.shape, generator=draw) < MASKED
        yield tokens.masked_fill(masked, args.vocabulary), tokens.masked_fill(~masked, -100)


def host_threads(ranks: int) -> int:
    """Cores for each of so many ranks of this computer: those that this process may use, its share
    if these are all.
    """
    mine = len(os.sched_getaffinity(0))
    return max(1, mine // ranks) if mine == os.cpu_count() else mine


def zero_settings(framework: str, disk: str) -> dict:
    """DeepSpeed's settings of ZeRO; `disk` is a folder of this rank's own, for what goes to a
    disk.
    """
    zero = ZERO[framework]
    if framework != NVME:
        return zero
    return {**zero, "offload_optimizer": {**zero["offload_optimizer"], "nvme_path": disk}}


def cpu_adam(parameters, lr: float) -> torch.optim.Optimizer:
    """DeepSpeed's AdamW for the host, which is compiled at its first start. Exits where that cannot
    be done.
    """
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    try:
        return DeepSpeedCPUAdam(parameters, lr=lr, weight_decay=0.0)
    except Exception as error:
        sys.exit(
            f"DeepSpeedCPUAdam needs a C++ compiler and ninja ({error}); without them:"
            " zero-2-offload"
        )


def engine(model: torch.nn.Module, args: argparse.Namespace, device: torch.device):
    """`(model, optimizer, backward, update)`: a model to call, a function of its loss, one that
    updates its weights.
    """
    if args.framework in OFFLOAD:  # whose optimizer works on the host, and would have one thread
        threads = host_threads(int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
        os.environ["OMP_NUM_THREADS"] = str(
            threads
        )  # what DeepSpeed compiles has OpenMP of its own
        torch.set_num_threads(threads)
    if args.framework.endswith(CPU_ADAM) or args.framework == NVME:
        optimizer = cpu_adam(model.parameters(), args.lr)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0, fused=True)
    if args.framework in ZERO:
        import deepspeed

        disk = ""
        if args.framework == NVME:
            disk = tempfile.mkdtemp(prefix="ddlbench-", dir=args.nvme)
            atexit.register(shutil.rmtree, disk, ignore_errors=True)
        zero = zero_settings(args.framework, disk)
        settings = {
            "train_micro_batch_size_per_gpu": args.batch_per_worker,
            "zero_optimization": zero,
        }
        if args.framework == "pld":
            settings["progressive_layer_drop"] = {
                "enabled": True,
                "theta": THETA,
                "gamma": SOON / args.steps,
            }
        # Weights and gradients are float32 under every framework, also where the network computes
        # in bf16: DeepSpeed's own bf16 would compare number formats.
        settings |= {"zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}
        settings |= {"gradient_clipping": 1.0}
        wrapped, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)

        return wrapped, optimizer, wrapped.backward, wrapped.step
    wrapped = model
    if args.framework == "ddp":
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
    elif args.framework == "fsdp":
        from torch.distributed.fsdp import fully_shard

        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0, fused=True)
    elif args.framework == "horovod":
        import horovod.torch as hvd

        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    def update():
        if args.framework == "horovod":
            optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with (
            optimizer.skip_synchronize()
            if args.framework == "horovod"
            else contextlib.nullcontext()
        ):
            optimizer.step()
        optimizer.zero_grad()

    return wrapped, optimizer, torch.Tensor.backward, update


def held(model: torch.nn.Module, wrapped: torch.nn.Module, optimizer: torch.optim.Optimizer):
    """What this rank holds after a backward pass: parameters, gradients, the optimizer's state.

    DeepSpeed's ZeRO keeps this rank's part of them in tensors of its own, and float32 copies of
    bf16 weights.
    """
    zero = getattr(wrapped, "optimizer", None)
    names = (
        "single_partition_of_fp32_groups",
        "fp32_partitioned_groups_flat",
        "fp32_groups_flat_partition",
    )
    copies = [tensor for name in names for tensor in getattr(zero, name, ())]
    parameters = [*model.parameters()]
    gradients = [tensor.grad for tensor in (*parameters, *copies) if tensor.grad is not None]
    gradients += [
        tensor
        for group in getattr(zero, "averaged_gradients", {}).values()
        for tensor in group or ()
    ]
    parameters += [tensor.ds_tensor for tensor in parameters if hasattr(tensor, "ds_tensor")]
    kept = [
        one
        for state in optimizer.state.values()
        for one in state.values()
        if isinstance(one, torch.Tensor)
    ]
    return parameters, gradients, [*copies, *kept]


def join(framework: str) -> tuple[int, torch.device]:
    """`(rank, device)` after all ranks have met."""
    cuda = torch.cuda.is_available()
    if framework == "horovod":
        import horovod.torch as hvd

        hvd.init()
        if hvd.size() != int(os.environ.get("WORLD_SIZE", hvd.size())):
            sys.exit(
                f"Horovod has {hvd.size()} ranks of {os.environ['WORLD_SIZE']}: start it with"
                " horovodrun"
            )
        rank, local = hvd.rank(), hvd.local_rank()
    else:
        if framework in ZERO:
            import deepspeed

            if not cuda:  # it would compile a collective of its own for minutes; Gloo reduces
                deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
            deepspeed.init_distributed("nccl" if cuda else "gloo", verbose=False)
        else:
            dist.init_process_group("nccl" if cuda else "gloo")
        rank, local = dist.get_rank(), int(os.environ.get("LOCAL_RANK", 0))
    if cuda:
        torch.cuda.set_device(local % torch.cuda.device_count())
    return rank, torch.device("cuda" if cuda else "cpu")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--framework", choices=["ddp", "fsdp", "horovod", *ZERO], default="ddp")
    parser.add_argument(
        "--size", choices=[*SIZES], default="small", help="model, layers, hidden, heads, vocabulary"
    )
    parser.add_argument("--model", choices=["gpt", "bert"], default="gpt")
    for name, value in {
        "layers": 2,
        "hidden": 64,
        "heads": 2,
        "sequence": 32,
        "vocabulary": 64,
        "steps": 30,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--batch-per-worker", type=int, default=8, help="sequences")
    parser.add_argument("--precision", choices=sorted(DTYPES), default="fp32")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--nvme",
        default=tempfile.gettempdir(),
        help="folder on a disk of the node, for zero-3-nvme",
    )
    parser.add_argument("--out", type=Path, default=Path(), help="folder of result.json")
    parser.set_defaults(**SIZES[parser.parse_known_args()[0].size])
    args = parser.parse_args()
    rank, device = join(args.framework)
    torch.manual_seed(args.seed)
    source = Markov(min(args.vocabulary, TOKENS))
    model = Network(args).to(device)
    wrapped, optimizer, backward, update = engine(model, args, device)
    record, losses, formats = Recorder(), [], []
    for tokens, labels in record.batches(batches(source, args, rank)):
        loss = wrapped(tokens.to(device), labels.to(device))
        backward(loss)
        if len(losses) == 1:  # the optimizer has its state since the first step
            holds = held(model, wrapped, optimizer)
            record.holds(*holds)
            formats = [
                sorted({str(tensor.dtype) for tensor in part if tensor.is_floating_point()})
                for part in holds
            ]
        update()
        losses.append(loss.detach())
        record.step(losses[-1], tokens.numel())
    if rank == 0:
        floor = source.floor(args.model, MASKED, args.sequence)
        last = torch.stack(losses[-10:]).mean().item()
        result = {"loss": last, "floor": floor, "steps": len(losses), "formats": formats}
        result |= {"optimizer": type(optimizer).__name__, "threads": torch.get_num_threads()}
        result["blocks"] = model.computed / (
            model.passes * len(model.blocks)
        )  # the share that was computed
        (args.out / "result.json").write_text(json.dumps(result))
        print(f"loss of the last 10 steps {last:.4f}, lowest possible {floor:.4f}")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
