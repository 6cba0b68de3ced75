"""Watching a training loop from inside: step times, and the operators of one step."""
