"""Calls out of the coordinator: branches, check-backs, alerts."""
