"""Measures Pharoah: against simulators with planted truth, real runs, and peers. Not installed.

`python -m evaluation NAME [--quick] [--seed N] [--out FILE]`
"""
