"""Verifiable oblivious pseudorandom function (RFC 9497) on ristretto255 (RFC 9496)."""
