"""Calls out: branches, check-backs and alerts, each within its bounds."""
