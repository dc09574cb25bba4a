"""What people look at: figures, one file each, and the page of a study."""
