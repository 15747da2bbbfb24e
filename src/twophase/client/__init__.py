"""The producer's API: messages, and the coordinators they go to.

Flat names are in `twophase`.
"""
