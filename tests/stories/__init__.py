"""The stories, told on the bed: real runners against real hosts, judged by the bed's oracle."""
