"""Migrations of the Django app."""
