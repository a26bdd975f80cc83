"""Commands that the files in `deploy/` call on a cluster: wait for its machines, and don't repeat a command that is wrong."""
