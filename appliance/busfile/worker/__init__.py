"""Workers with git: each task has a branch and a worktree, from `spawn` to `merge`."""
