"""`twophase doctor`: a set-up looked at from the coordinator and from the service."""
