"""dtm's protobuf messages as bytes and plain values (ADR 0010).

The options of gRPC channels are here, too.
"""
