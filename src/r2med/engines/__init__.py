"""Search engines of the user: asked over HTTP, by SQL or as a function, and filled with documents."""
