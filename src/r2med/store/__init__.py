"""Files on disk: home, cache, whole files, sealed SQLite files, progress, and the hub."""
