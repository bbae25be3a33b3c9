"""What can be wrong with data: single bad rows, and anomalies of whole files."""
