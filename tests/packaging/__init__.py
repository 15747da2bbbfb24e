"""Tests of what the two distributions hold, and of what they say when one is missing."""
