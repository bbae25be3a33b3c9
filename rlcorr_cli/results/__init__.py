"""Conclusions as values: reports of a dump, of a filter run, of a check, of an inspection."""
