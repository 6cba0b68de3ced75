"""Benchmarks: workloads, micro-benchmarks and the cells of campaigns. Everything here runs in processes of its own."""
