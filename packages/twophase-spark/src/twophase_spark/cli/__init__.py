"""The commands of `twophase spark`."""
