"""The stores: one protocol (`base`), one folder an engine, one conformance suite."""
