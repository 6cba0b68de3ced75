"""Campaigns: planned sets of cells (workload x software settings x context), each run in a process of its own."""
