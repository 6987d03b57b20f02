"""Arrays of any runtime held to the values of a reference: no names, no map, no graph of the other side."""
