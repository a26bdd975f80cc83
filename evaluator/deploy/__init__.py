"""Commands used by the files in `deploy/`: wait for a cluster's machines, and do not retry an invalid command."""
