"""From totals to the numbers that people know, and what each of them means."""
