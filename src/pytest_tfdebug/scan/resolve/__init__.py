"""What names mean across files (modules, classes, values, decorators), and what becomes of each test."""
