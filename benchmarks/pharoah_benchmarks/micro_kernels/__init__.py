"""Kernels of the micro-benchmarks. They import torch, so only the child that measures imports them."""
