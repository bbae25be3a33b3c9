"""Layouts: what each framework's own dump means, in canonical columns.  A container makes values of a file's bytes."""
