"""Built-in plugins: one file each that uses only the standard library, so that batch jobs
elsewhere can run the same file."""
