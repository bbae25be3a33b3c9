"""What reading says of data: classes of bad rows, names of columns, the first rows of a file."""
