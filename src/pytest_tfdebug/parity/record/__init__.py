"""A comparison as the record of a finished check, which pages and files are made from."""
