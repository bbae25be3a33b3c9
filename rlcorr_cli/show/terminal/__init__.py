"""Reports as text on a terminal."""
