"""The use of a cluster: what executors must have, and a check that they have it."""
