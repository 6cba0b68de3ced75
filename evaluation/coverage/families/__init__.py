"""Tiny models of public libraries, and the plain training loop that trains one of them."""
