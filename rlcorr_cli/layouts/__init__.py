"""Frameworks' own files, known by their contents and read as samples in canonical columns; `table` has them all."""
