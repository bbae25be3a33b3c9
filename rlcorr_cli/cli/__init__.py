"""The command line: one short module per command, options and the error door shared."""
