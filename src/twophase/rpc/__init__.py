"""dtm's gRPC interface as bytes and plain values, and what every gRPC channel of ours has in common (dtm-wire §2).

Used by the server's gRPC port, by the destination that calls gRPC branches, and by the client; knows none of them.
"""
