"""Pages for people: the live ledger in a browser, a report in one file, and a static site, from one set of views."""
