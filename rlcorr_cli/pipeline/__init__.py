"""Where io and core meet: one module per job that reads a dump."""
