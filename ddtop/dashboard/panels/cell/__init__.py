"""What is known of one cell: its workload, its measurement as it goes, its result, what it was measured on."""
