"""HTTP/2 as a server of gRPC needs it, in a few rooms that know neither gRPC nor a coordinator (RFC 9113, ADR 0017).

`frames` are bytes, `headers` what a block of them means, `outbox` what the peer's windows let through, `stream` one
request, `connection` one peer, `port` everybody who is connected.
"""
