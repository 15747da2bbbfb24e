"""The gRPC server: methods and calls (gRPC over HTTP/2).

It runs on an HTTP/2 server of its own (`http2`, ADR 0017). `services` has the methods of a port, `calls` the state of
the calls under way, `heads` the meaning of a call's headers, `incoming` its messages; `unary` and `streaming` answer
one call, `status` ends it. Nothing here knows a coordinator.
"""
