"""Validation of nodes: micro-benchmarks, and files that other tools have in common with Pharoah."""
