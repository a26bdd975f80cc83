"""The results store: a run is a folder of files in open formats, each written atomically."""
