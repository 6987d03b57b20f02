"""What names mean across files: modules, classes and their bases, values, decorators, conditions."""
