"""The server process: ports in front of the coordinator, in dtm's words (dtm-wire §1, §2) and our own.

`app` puts everything together, from `settings` and `stores`. The rooms:

* `formats`: what a request says (`wire` its fields, `decode` the message, `options` its delivery, `trace` what it
  belongs to), and what is answered (`encode` from an outcome to bytes, `query` and `shown` from a message to JSON);
* `hot`: the HTTP port. `listener` accepts, `reader` makes requests of bytes, `protocol` answers hot ones in `turns`;
* `doors`: every other way in. Behind ASGI, on what `cold` gives them, the rest of dtm's HTTP, JSON-RPC, operators,
  topics, many at once and takeovers; gRPC on its own port;
* `openapi`, which describes what goes over HTTP; `metrics` and `told`, `logs`, `alerting`, and `null`, a coordinator
  that keeps nothing.
"""
