"""The requirements on every store engine; a new one adds itself to `engines.py`."""
