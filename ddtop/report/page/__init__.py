"""Parts of the HTML page: the run's timeline, the matrix, and what is known of each cell."""
