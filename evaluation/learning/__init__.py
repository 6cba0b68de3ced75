"""What learning finds in data whose truth is known, beside simpler methods."""
