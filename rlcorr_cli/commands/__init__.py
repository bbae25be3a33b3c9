"""Every command, as a function of Python and on the command line; options, the entry, completion."""
