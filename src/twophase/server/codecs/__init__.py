"""Conversion between bytes and messages: the formats of requests and answers."""
