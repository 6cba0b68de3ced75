"""The wire schema. Protobuf types stop at the courier and at the provider's servicers."""
