"""This script raises."""

raise RuntimeError("wrong")
