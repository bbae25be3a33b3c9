"""A correction as data: what a plan is, the files it is read from, and the presets."""
