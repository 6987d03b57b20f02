"""What several rooms speak of, as plain data: what saves, prints, draws or runs it again stands above."""
