"""Other people's formats: run files scored, results exported, submissions packed and verified."""
