"""What every store engine must do, told once; an engine joins by adding itself to `engines.py`."""
