#!/bin/sh
# Lightning's own example of Fabric, unmodified, for config/programs/fabric.yaml. Its package does not hold it.
set -e
mkdir -p "$(dirname "$0")/image_classifier"
cd "$(dirname "$0")/image_classifier"
from=https://raw.githubusercontent.com/Lightning-AI/pytorch-lightning/7f0c3436cd3f6ad3753125672024fc415cbcb414
curl -fsSL -o train_fabric.part "$from/examples/fabric/image_classifier/train_fabric.py"
echo "4b9430c1975b705826557aa7b108e8a210ef789cd015c006dfbb8ee075ff0b93  train_fabric.part" | sha256sum -c -
mv train_fabric.part train_fabric.py
