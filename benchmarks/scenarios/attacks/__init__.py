"""The attacks of the scenario `floods`, each a client that never ends."""
