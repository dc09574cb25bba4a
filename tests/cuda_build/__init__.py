"""The environment for GPUs, made from nothing: slow, with the network and 20 GB of disk."""
