"""The load: who produces, who is called, what is measured of it."""
