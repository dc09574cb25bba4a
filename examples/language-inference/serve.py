"""Ask a BERT, a GPT-2 or a GPT-Neo, served in one of several ways: a program of a user's own, which
trains nothing.

The models are those of Hugging Face by their configuration, with random weights: a request takes as
long, and nothing is downloaded. `python serve.py --help` says what it takes. Started by ddlbench
(config/programs/language-inference.yaml) or by torchrun. Tried with transformers 5.23.0, DeepSpeed
0.19.6 and torch 2.13.0 on CPUs; ways of KERNELS were never run.

A request is a batch of sequences, and its response the scores of each sequence's last token. The
ranks of a way in SLICED share every layer, so all of them work on the whole request. In the other
ways each rank has the whole model, and answers its part of the request. A request is over when all
ranks have all responses.
"""

import argparse
import copy
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.append(str(Path(__file__).resolve().parents[2] / "recorder"))  # or: pip install ./recorder
from ddlbench_recorder import Recorder

# Nothing here needs torchvision, which transformers imports where it finds it: one that was built
# for CUDA does not import beside a torch for CPUs.
sys.modules["torchvision"] = None

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# DeepSpeed's own kernels in place of the model's layers, on GPUs: in 16 bits, and with weights in
# 8.
KERNELS = {"deepspeed-kernels": torch.float16, "deepspeed-kernels-int8": torch.int8}
SLICED = ("deepspeed-autotp", "own-slices", *KERNELS)
WAYS = ("plain", "compiled", "int8", "deepspeed-engine", *SLICED)
# Family, blocks, width, heads, vocabulary: Devlin et al. 2018, Radford et al. 2019, and
# EleutherAI's GPT-Neo.
SIZES = {
    "bert-small": ("bert", 2, 64, 4, 1024),
    "gpt2-small": ("gpt2", 2, 64, 4, 1024),
    "gpt-neo-small": ("gpt-neo", 2, 64, 4, 1024),
    "bert-large": ("bert", 24, 1024, 16, 30522),
    "gpt2-1.5e9": ("gpt2", 48, 1600, 25, 50257),
    "gpt-neo-2.7e9": ("gpt-neo", 32, 2560, 20, 50257),
}


def refuses(way: str, size: str, ranks: int, device: str) -> str | None:
    """Why a model cannot be served in this way, or None."""
    family, _, _, heads, _ = SIZES[size]
    if way == "deepspeed-autotp" and family == "gpt2":
        return (
            "DeepSpeed's AutoTP refuses GPT-2, whose layers are no torch.nn.Linear; allowed:"
            " own-slices"
        )
    if way == "own-slices" and family != "gpt2":
        return f"DeepSpeed slices {size} itself; allowed: deepspeed-autotp"
    if way in KERNELS and device != "cuda":
        return f"{way}: DeepSpeed's kernels are for GPUs"
    if way in SLICED and heads % ranks:
        return f"{way}: {ranks} ranks do not divide the {heads} heads of {size}"
    return None


def build(size: str, sequence: int) -> torch.nn.Module:
    """The model, with weights from torch's seed."""
    import transformers

    family, blocks, width, heads, vocabulary = SIZES[size]
    if family == "bert":
        config = transformers.BertConfig(
            vocab_size=vocabulary,
            hidden_size=width,
            num_hidden_layers=blocks,
            num_attention_heads=heads,
            intermediate_size=4 * width,
            max_position_embeddings=sequence,
        )
        return transformers.BertForMaskedLM(config).eval()
    if family == "gpt2":
        config = transformers.GPT2Config(
            vocab_size=vocabulary,
            n_embd=width,
            n_layer=blocks,
            n_head=heads,
            n_positions=sequence,
            use_cache=False,
        )
        return transformers.GPT2LMHeadModel(config).eval()
    config = transformers.GPTNeoConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_layers=blocks,
        num_heads=heads,
        attention_types=[[["global", "local"], blocks // 2]],
        max_position_embeddings=sequence,
        use_cache=False,
    )
    return transformers.GPTNeoForCausalLM(config).eval()


def deepspeed_settings(way: str, ranks: int, dtype: torch.dtype) -> dict:
    """What `deepspeed.init_inference` is given."""
    settings = {"dtype": KERNELS.get(way, dtype), "replace_with_kernel_inject": way in KERNELS}
    if way in SLICED:
        settings["tensor_parallel"] = {"tp_size": ranks}
    return settings


def ready(model: torch.nn.Module, way: str, ranks: int, dtype: torch.dtype) -> torch.nn.Module:
    """The model as it is served. All ranks call it at once; it may change the model."""
    if way == "compiled":
        return torch.compile(model, dynamic=False)
    if way == "int8":
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

        quantize_(model, Int8DynamicActivationInt8WeightConfig())
    elif way == "own-slices":
        slice_layers(model, dist.get_rank() if ranks > 1 else 0, ranks)
    elif way.startswith("deepspeed"):
        import deepspeed

        return deepspeed.init_inference(model, **deepspeed_settings(way, ranks, dtype))
    return model


class Slice(torch.nn.Module):
    """This rank's outputs of a layer of GPT-2, and the gathering of all of them."""

    def __init__(self, layer: torch.nn.Module, rank: int, ranks: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(
            layer.weight.detach().chunk(ranks, dim=1)[rank].clone(), requires_grad=False
        )
        self.bias = torch.nn.Parameter(
            layer.bias.detach().chunk(ranks)[rank].clone(), requires_grad=False
        )
        self.ranks = ranks

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        mine = (inputs @ self.weight + self.bias).contiguous()
        parts = [torch.empty_like(mine) for _ in range(self.ranks)]
        dist.all_gather(parts, mine)
        return torch.cat(parts, dim=-1)


def slice_layers(model: torch.nn.Module, rank: int, ranks: int) -> None:
    """Replace each layer of GPT-2's blocks (transformers' Conv1D, weights [in, out]) by this rank's
    part of it.
    """
    if ranks == 1:
        return
    for name, layer in model.named_children():
        if type(layer).__name__ == "Conv1D":
            setattr(model, name, Slice(layer, rank, ranks))
        else:
            slice_layers(layer, rank, ranks)


def weights_bytes(model: torch.nn.Module) -> int:
    """Bytes of parameters and buffers on this rank, each storage once; of quantised tensors, of
    their parts.
    """
    tensors, held = [*model.parameters(), *model.buffers()], {}
    while tensors:
        tensor = tensors.pop()
        if hasattr(tensor, "__tensor_flatten__"):
            tensors += [getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]]
        else:
            storage = tensor.untyped_storage()
            held[storage.data_ptr()] = storage.nbytes()
    return sum(held.values())


def kinds(model: torch.nn.Module) -> dict[str, str]:
    """The class of each module that has weights of its own, by its name."""
    return {
        name: type(one).__name__
        for name, one in model.named_modules()
        if [*one.parameters(recurse=False)]
    }


def join(way: str) -> tuple[int, int, torch.device]:
    """`(rank, ranks, device)` after all ranks have met."""
    cuda = torch.cuda.is_available()
    os.environ.setdefault("DS_ACCELERATOR", "cuda" if cuda else "cpu")
    if cuda:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
    if "WORLD_SIZE" not in os.environ:  # started by hand
        os.environ |= {
            "RANK": "0",
            "LOCAL_RANK": "0",
            "WORLD_SIZE": "1",
            "MASTER_ADDR": "localhost",
        }
        os.environ.setdefault("MASTER_PORT", "29500")
    if way.startswith("deepspeed"):
        import deepspeed

        if not cuda:  # it would compile a collective of its own for minutes; Gloo sums
            deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        deepspeed.init_distributed("nccl" if cuda else "gloo", verbose=False)
    else:
        dist.init_process_group("nccl" if cuda else "gloo")
    return dist.get_rank(), dist.get_world_size(), torch.device("cuda" if cuda else "cpu")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--way", choices=WAYS, default="plain")
    parser.add_argument("--size", choices=[*SIZES], default="bert-small")
    parser.add_argument(
        "--batch", type=int, default=2, help="sequences in a request, over all ranks"
    )
    parser.add_argument("--sequence", type=int, default=32, help="tokens")
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--precision", choices=sorted(DTYPES), default="fp32")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(), help="folder of result.json")
    args = parser.parse_args()
    ranks, cuda = int(os.environ.get("WORLD_SIZE", "1")), torch.cuda.is_available()
    if reason := refuses(args.way, args.size, ranks, "cuda" if cuda else "cpu"):
        sys.exit(f"--way {args.way} --size {args.size}: {reason}")
    if args.batch % ranks:
        sys.exit(f"--batch {args.batch}: {ranks} ranks do not divide it")
    rank, ranks, device = join(args.way)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    torch.manual_seed(args.seed)
    dtype, part = DTYPES[args.precision], args.batch // ranks
    model = build(args.size, args.sequence).to(dtype)
    draw = torch.Generator().manual_seed(args.seed)
    tokens = torch.randint(SIZES[args.size][-1], (args.batch, args.sequence), generator=draw).to(
        device
    )
    mine = tokens if args.way in SLICED else tokens[rank * part : (rank + 1) * part]
    with torch.inference_mode():
        model.to(device)
        before, plain_bytes = kinds(model), weights_bytes(model)
        wanted = copy.deepcopy(model(input_ids=mine).logits[:, -1].float())
        served = ready(model, args.way, ranks, dtype)
        core = getattr(served, "module", getattr(served, "_orig_mod", served))
        after, mine_bytes = kinds(core), weights_bytes(core)

        def respond() -> torch.Tensor:
            """The scores of this rank's part, after all ranks have theirs."""
            scores = served(input_ids=mine).logits[:, -1]
            if args.way not in SLICED and ranks > 1:
                parts = [torch.empty_like(scores) for _ in range(ranks)]
                dist.all_gather(parts, scores.contiguous())
            if cuda:
                torch.cuda.synchronize()
            return scores

        record = Recorder()
        record.holds(mine_bytes, 0, 0)
        for _ in record.batches(range(args.requests)):
            scores = respond()
            record.step(samples=part)
    if rank == 0:
        changed = [name for name, kind in after.items() if before.get(name) != kind]
        result = {"way": args.way, "ranks": ranks, "replaced": len(changed), "modules": len(before)}
        result |= {"weights_bytes": mine_bytes, "plain_weights_bytes": plain_bytes}
        result["largest_difference"] = float((scores.float() - wanted).abs().max())
        result["largest_score"] = float(wanted.abs().max())
        (args.out / "result.json").write_text(json.dumps(result))
        print(
            f"{len(changed)} of {len(before)} modules replaced, scores differ by"
            f" {result['largest_difference']:.2g}"
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
