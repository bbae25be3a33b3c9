"""What CI systems read: JUnit XML, and GitHub's annotations and step summary."""
