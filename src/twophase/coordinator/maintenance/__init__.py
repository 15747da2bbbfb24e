"""Work beside requests: recovery, retention, horizons, probes of check addresses."""
