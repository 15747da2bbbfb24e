"""The routes of consumers and producers of queues, under `/api/twophase/queues/`."""
