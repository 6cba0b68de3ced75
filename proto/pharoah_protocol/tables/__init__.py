"""Sealed tables of verdict rows: epoch heads, rows, queries, signed messages and evidence of misbehaviour."""
