"""gRPC servicers: decode, call, encode. Protobuf stops here."""
