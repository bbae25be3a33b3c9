"""What a metric should be: rules, baselines, and the one judge that holds numbers to them."""
