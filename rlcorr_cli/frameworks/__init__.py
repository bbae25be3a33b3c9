"""One module per trainer: its config as a Plan, its presets, and our totals under its own metric names."""
