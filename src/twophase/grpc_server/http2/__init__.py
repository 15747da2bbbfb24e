"""The server's side of HTTP/2, as gRPC needs it (RFC 9113, ADR 0017).

Nothing here knows gRPC. `frames` are bytes, `headers` the meaning of a header block, `outbox` keeps the peer's windows,
`stream` is one request, `connection` one peer, `port` all connections.
"""
