"""The private exchange: the cryptography both sides share. Used by the courier and by the provider, never by a rank.

Protocol: RFC 9497 VOPRF (ristretto255-SHA512) for the keys of rows, ChaCha20-Poly1305 for the rows, an RFC 6962 tree
over each table, one Ed25519-signed head per epoch.
"""
