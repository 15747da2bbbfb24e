"""This node as one of several on a store: its lease, its rows, its clock."""
