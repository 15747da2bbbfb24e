"""RocketMQ's gRPC messages as bytes and plain values (ADR 0010).

`values` are the plain values, `requests` reads what clients send, `answers` writes what they are sent, and `codes` has
the numbers of both. Nothing outside this package sees protobuf.
"""
