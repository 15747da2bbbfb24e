"""Lineage of audits: events of OpenLineage, for those who keep a catalogue.

`naming` names databases and files as OpenLineage does, `events` makes the events of one audit, `sending` sends them by
OpenLineage's own client and settings. Nothing here fails an audit, and it delays one by seconds at most.
"""
