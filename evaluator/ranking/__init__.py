"""Models of many runs in one table: main values with intervals, ranks with their uncertainty; a static page and a CSV file."""
