"""What a scan found, as data and as text."""
