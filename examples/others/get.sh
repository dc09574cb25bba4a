#!/bin/sh
# Programs that nobody here wrote, as they are, and small data for them: the digits of data set mnist5k, and a text of
# made-up words. config/programs has a file for each. It runs in ddlbench's environment; what these programs need further comes
# into an environment of their own, which has the packages of ddlbench, too.
set -e
cd "$(dirname "$0")"
python=${PYTHON:-python}

take() {  # repository, commit, what of it, to where
    git clone --quiet --no-checkout "https://github.com/$1" source
    mkdir -p "$4"
    git -C source archive "$2" "$3" > source.tar
    tar -x -C "$4" -f source.tar
    rm source.tar
    rm -rf source
}
take karpathy/nanoGPT 3adf61e154c3fe3fca428ad6bc3818b27a3b8291 . nanogpt
take pytorch/examples 77f55b912142e11fcfdf5b530231fb9c52f181e8 mnist pytorch-examples
take huggingface/pytorch-image-models aa4b5850c1543fa488abf260f18390eda46cf85d train.py timm
take facebookresearch/dlrm 090956ee2319ddd349a42232958aefccfe3f7b0a . dlrm
take horovod/horovod 2626dc87a3a8eb8fb7d2216198ce45bce0f9e65a examples/pytorch .
mv examples/pytorch horovod && rmdir examples
take Lightning-AI/pytorch-lightning 7f0c3436cd3f6ad3753125672024fc415cbcb414 examples/fabric/image_classifier lightning

"$python" -m venv environment
site=$(environment/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$python" - > "$site/ddlbench.pth" <<'PYTHON'
import sysconfig

from ddlbench.run.rank import HOOKS

print(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})")
print(HOOKS)  # torchvision can be imported beside PyTorch's CPU build, as in programs without an environment
PYTHON
environment/bin/python -m pip install --quiet --no-deps --target "$site" lightning==2.6.6 lightning-utilities==0.15.3 \
    torchmetrics==1.9.0 onnx==1.23.2 ml_dtypes==0.6.0 protobuf==7.36.2 tensorboard==2.21.0 absl-py==2.5.1 grpcio==1.85.3 \
    markdown==3.11.3 werkzeug==3.1.9 tensorboard-data-server==0.7.2 pydot==4.0.1 ultralytics==8.4.190 \
    ultralytics-thop==2.2.3 opencv-python-headless==5.0.0.93 polars==2.1.0 polars-runtime-32==2.1.0 litgpt==0.5.13 \
    litdata==0.2.76 jsonargparse==4.53.0 tokenizers==0.23.3 boto3 botocore s3transfer jmespath obstore docstring-parser \
    typeshed-client importlib_metadata zipp scikit-learn==1.9.1 joblib==1.6.0 narwhals==2.29.0 threadpoolctl==3.8.0

"$python" - <<'PYTHON'
import gzip
import random
import struct
from pathlib import Path

import numpy as np
from ddlbench.data.datasets import mnist5k
from PIL import Image

pictures = np.frombuffer(gzip.decompress(mnist5k.PACKED.read_bytes()), np.uint8).reshape(-1, mnist5k.PIXELS)
labels = np.arange(len(pictures)) // mnist5k.PER_CLASS
order = np.random.default_rng(0).permutation(len(labels))
pictures, labels = pictures[order], labels[order]


def idx(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    head = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(head + array.tobytes())


for root in (Path("pytorch-examples/data"), Path("lightning/Datasets")):
    for name, part in (("train", slice(0, 1600)), ("t10k", slice(4000, 4200))):
        raw = root / "MNIST/raw"
        idx(raw / f"{name}-images-idx3-ubyte", pictures[part].reshape(-1, 28, 28))
        idx(raw / f"{name}-labels-idx1-ubyte", labels[part].astype(np.uint8))
for split, part in (("train", range(640)), ("val", range(4000, 4100))):
    for n in part:
        place = Path("timm/digits", split, str(labels[n]))
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pictures[n].reshape(28, 28)).convert("RGB").resize((32, 32)).save(place / f"{n}.png")
draw = random.Random(0)
words = ["".join(draw.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(draw.randint(1, 9))) for _ in range(2000)]
lines = [" ".join(draw.choice(words) for _ in range(draw.randint(4, 14))) for _ in range(20000)]
Path("nanogpt/data/shakespeare_char/input.txt").write_text("\n".join(lines))
Path("litgpt/texts").mkdir(parents=True)
for part in range(4):
    Path(f"litgpt/texts/part{part}.txt").write_text("\n".join(lines[5000 * part : 5000 * (part + 1)]))
PYTHON
"$python" nanogpt/data/shakespeare_char/prepare.py
environment/bin/python - <<'PYTHON'
import json
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

made = Tokenizer(models.BPE(unk_token="<unk>"))
made.pre_tokenizer = pre_tokenizers.ByteLevel()
trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=["<unk>", "<|endoftext|>"])
made.train(["nanogpt/data/shakespeare_char/input.txt"], trainer)
folder = Path("litgpt/tokenizer")
folder.mkdir(parents=True)
made.save(str(folder / "tokenizer.json"))
names = dict.fromkeys(("bos_token", "eos_token"), "<|endoftext|>") | {"unk_token": "<unk>"}
names["tokenizer_class"] = "PreTrainedTokenizerFast"
(folder / "tokenizer_config.json").write_text(json.dumps(names))
PYTHON
