"""Real database servers for tests: started on free private ports, in a temporary directory, stopped after the run."""
