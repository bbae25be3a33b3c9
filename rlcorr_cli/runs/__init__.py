"""Where io and measure meet: one module per job that reads a dump."""
