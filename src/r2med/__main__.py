"""`python -m r2med`."""

from __future__ import annotations

from r2med.cli.main import main

if __name__ == "__main__":
    main()
