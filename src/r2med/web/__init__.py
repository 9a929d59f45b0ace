"""The server and the frame of its pages: access, jobs, the live feed, addresses."""
