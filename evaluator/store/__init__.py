"""The results store: a run is a folder of open formats in which every file appears whole or not at all."""
