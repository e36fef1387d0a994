"""A child process that can't outlive its parent: lines of work, limits, and a supervisor."""
