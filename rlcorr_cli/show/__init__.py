"""Reports in, text out: the home of rich, free of tensors and of data files."""
