"""The producer's API: messages, and the coordinators they go to (design §8).

Flat names are in `twophase`.
"""
