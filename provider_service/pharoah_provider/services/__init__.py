"""gRPC servicers: decode, call, encode. Protobuf messages stop here."""
