"""When disks will be full: from samples of their use, and of the sizes of the stores."""
