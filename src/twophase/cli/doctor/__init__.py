"""`twophase doctor`: checks of a set-up, from the coordinator and the service."""
