"""Plain numbers that add: what is left of a batch once it has been observed, whichever worker observed it."""
