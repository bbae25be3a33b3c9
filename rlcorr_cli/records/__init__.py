"""Dataclasses with a JSON form: their keys, the records, and how one becomes the other."""
