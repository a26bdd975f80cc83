"""Reports: tidy rows to tables, files and plots."""
