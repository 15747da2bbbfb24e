"""Durability: one protocol (`base`), one folder per engine, one conformance suite for all."""
