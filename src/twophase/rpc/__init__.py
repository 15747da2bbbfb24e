"""gRPC as a few rooms on `http2`, and dtm's interface in it as bytes and plain values (dtm-wire §2, ADR 0017).

Serving: `services` knows the methods of a port, `heads` what a call's headers mean, `incoming` its messages; `unary`
and `streaming` answer one call, `status` ends it. Beside it: `messages`, dtm's requests in protobuf and back, and
`channel`, with what every channel of ours is opened. Used by the server's gRPC port, by the destination that calls gRPC
branches, and by the client; knows none of them.
"""
