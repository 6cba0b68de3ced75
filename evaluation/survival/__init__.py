"""What survival models find before failures, in simulated fleets whose truth is known and in real lives of GPUs."""
