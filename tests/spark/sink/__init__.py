"""The sink: `write` and `writeStream`."""
