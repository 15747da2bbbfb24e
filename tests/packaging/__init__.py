"""Tests of the two distributions' contents and of their words without each other."""
