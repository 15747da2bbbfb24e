"""dtm's protobuf messages as bytes and plain values, and the options of gRPC channels (ADR 0010)."""
