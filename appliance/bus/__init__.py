"""The worker bus on the command line. The file and its rules are in `busfile`."""
