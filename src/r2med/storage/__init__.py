"""What lies on disk: the home, the cache, whole files, sealed SQLite files, progress, and the hub."""
