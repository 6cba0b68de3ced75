"""Pure models: arrays in, numbers out. No I/O, no clock, no protobuf."""
