"""`python -m r2med`."""

from r2med.cli.main import main

if __name__ == "__main__":
    main()
