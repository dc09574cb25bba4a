"""Train a GPT or a BERT of any size on tokens whose lowest possible loss is known: a program of a user's own.

`python train.py --help` says what it takes. Started by ddlbench (config/programs/language_model.yaml) or by torchrun;
under Horovod by horovodrun. Its only word to ddlbench is the recorder (three lines), which does nothing elsewhere.
"""

import argparse
import contextlib
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from markov import Markov

sys.path.append(str(Path(__file__).resolve().parents[2] / "recorder"))  # or: pip install ./recorder
from ddlbench_recorder import Recorder

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class Network(torch.nn.Module):
    """GPT (looks back only) or BERT (looks both ways) by its sizes: (batch, sequence) tokens to scores of each token.

    Blocks are PyTorch's, normalised first, and the scores share the embedding's weights: GPT-2's and BERT's sizes but
    for a few thousand weights. There is no dropout.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        self.causal = args.model == "gpt"
        self.tokens = torch.nn.Embedding(args.vocabulary + 1, args.hidden)  # one more: BERT's mask
        self.places = torch.nn.Embedding(args.sequence, args.hidden)
        sizes = {"nhead": args.heads, "dim_feedforward": 4 * args.hidden, "dropout": 0.0, "activation": "gelu"}
        self.blocks = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(args.hidden, **sizes, batch_first=True, norm_first=True)
            for _ in range(args.layers)
        )
        self.norm = torch.nn.LayerNorm(args.hidden)
        for table in (self.tokens, self.places):
            torch.nn.init.normal_(table.weight, std=0.02)

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The mean loss over labels, in nats per token; labels of -100 do not count."""
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        length = tokens.shape[1]
        mask = torch.nn.Transformer.generate_square_subsequent_mask(length, x.device, x.dtype) if self.causal else None
        for block in self.blocks:
            x = block(x, src_mask=mask, is_causal=self.causal)
        scores = torch.nn.functional.linear(self.norm(x), self.tokens.weight)
        if self.causal:
            scores, labels = scores[:, :-1], labels[:, 1:]
        return torch.nn.functional.cross_entropy(scores.flatten(0, 1).float(), labels.flatten())


def batches(source: Markov, args: argparse.Namespace, rank: int):
    """`args.steps` batches of this rank: tokens and labels, (batch, sequence) each. Step and rank are in the seed."""
    for step in range(args.steps):
        draw = torch.Generator().manual_seed(args.seed * 1_000_003 + step * 4099 + rank)
        tokens = source.draw(args.batch_per_worker, args.sequence, draw)
        if args.model == "gpt":
            yield tokens, tokens
            continue
        masked = torch.rand(tokens.shape, generator=draw) < 0.15
        yield tokens.masked_fill(masked, args.vocabulary), tokens.masked_fill(~masked, -100)


def engine(model: torch.nn.Module, args: argparse.Namespace, device: torch.device):
    """`(model, step)`: a model to call, and a function that takes its loss back and updates its weights."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0)
    if args.framework == "deepspeed":
        import deepspeed

        zero = {"stage": args.zero} | ({"offload_optimizer": {"device": "cpu"}} if args.offload else {})
        settings = {"train_micro_batch_size_per_gpu": args.batch_per_worker, "zero_optimization": zero}
        settings |= {"bf16": {"enabled": args.precision == "bf16"}, "zero_allow_untested_optimizer": True}
        settings |= {"zero_force_ds_cpu_optimizer": False, "gradient_clipping": 1.0}
        wrapped, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)

        def step(loss):
            wrapped.backward(loss)
            wrapped.step()

        return wrapped, step
    wrapped = model
    if args.framework == "ddp":
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
    elif args.framework == "fsdp":
        from torch.distributed.fsdp import fully_shard

        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0)
    elif args.framework == "horovod":
        import horovod.torch as hvd

        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    def step(loss):
        loss.backward()
        if args.framework == "horovod":
            optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with optimizer.skip_synchronize() if args.framework == "horovod" else contextlib.nullcontext():
            optimizer.step()
        optimizer.zero_grad()

    return wrapped, step


def join(framework: str) -> tuple[int, torch.device]:
    """`(rank, device)` after all ranks have met."""
    cuda = torch.cuda.is_available()
    if framework == "horovod":
        import horovod.torch as hvd

        hvd.init()
        rank, local = hvd.rank(), hvd.local_rank()
    else:
        if framework == "deepspeed":
            import deepspeed

            deepspeed.init_distributed("nccl" if cuda else "gloo", verbose=False)
        else:
            dist.init_process_group("nccl" if cuda else "gloo")
        rank, local = dist.get_rank(), int(os.environ.get("LOCAL_RANK", 0))
    if cuda:
        torch.cuda.set_device(local % torch.cuda.device_count())
    return rank, torch.device("cuda" if cuda else "cpu")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--framework", choices=["ddp", "fsdp", "deepspeed", "horovod"], default="ddp")
    parser.add_argument("--zero", type=int, choices=[0, 1, 2, 3], default=0, help="ZeRO stage of DeepSpeed")
    parser.add_argument("--offload", action="store_true", help="DeepSpeed keeps the optimizer's state on the host")
    parser.add_argument("--model", choices=["gpt", "bert"], default="gpt")
    for name, value in {"layers": 2, "hidden": 64, "heads": 2, "sequence": 32, "vocabulary": 64, "steps": 30}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--batch-per-worker", type=int, default=8, help="sequences")
    parser.add_argument("--precision", choices=sorted(DTYPES), default="fp32")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(), help="folder of result.json")
    args = parser.parse_args()
    rank, device = join(args.framework)
    torch.manual_seed(args.seed)
    source = Markov(args.vocabulary)
    model = Network(args).to(device)
    wrapped, step = engine(model, args, device)
    record, losses = Recorder(), []
    for tokens, labels in record.batches(batches(source, args, rank)):
        with torch.autocast(device.type, DTYPES[args.precision], enabled=args.precision != "fp32"):
            loss = wrapped(tokens.to(device), labels.to(device))
        step(loss)
        losses.append(loss.detach())
        record.step(losses[-1], tokens.numel())
        if record.asked_to_stop:
            break
    if rank == 0:
        floor = source.floor(args.model)
        last = torch.stack(losses[-10:]).mean().item()
        (args.out / "result.json").write_text(json.dumps({"loss": last, "floor": floor, "steps": len(losses)}))
        print(f"loss of the last 10 steps {last:.4f}, lowest possible {floor:.4f}")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
