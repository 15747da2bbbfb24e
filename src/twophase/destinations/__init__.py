"""How a branch or a check-back is called: one file per scheme of an address."""
