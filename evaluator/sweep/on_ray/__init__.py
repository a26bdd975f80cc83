"""Running a sweep on Ray: the cluster, placement groups, actors, and the replicas that the loop sees."""
