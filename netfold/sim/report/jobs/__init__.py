"""Jobs that come and go, as lines of the terminal and as a chart."""
