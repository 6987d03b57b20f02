"""What the texts of both sides show."""
