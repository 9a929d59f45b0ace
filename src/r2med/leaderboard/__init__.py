"""The leaderboard: published rows and local runs ranked together, as table, page, report and site."""
