"""The protocol's pure part: one file of tests for each module of `twophase.core`."""
