"""This script has no torch."""

print("no training here")
