"""Who is to blame: each file looks at one kind of evidence."""
