"""What a run leaves for other tools and for people: properties, annotations, a JSON file and pages."""
