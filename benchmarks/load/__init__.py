"""The load: producers, the branch service, and the measurement."""
