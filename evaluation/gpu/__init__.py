"""Measurements that need a CUDA device: signals, micro-benchmarks, fingerprints, memory, and a job that is watched."""
