"""From what a person named as a dump to checked batches of log-probs, and back to files of rows."""
