"""The workbench: queries of runs side by side, search, run and system pages."""
