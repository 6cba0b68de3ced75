"""Learning: from stored trials, degraded runs and benchmarks to a release."""
