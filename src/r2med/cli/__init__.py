"""The command line: the program, its options and output, and the verbs that belong to no study."""
