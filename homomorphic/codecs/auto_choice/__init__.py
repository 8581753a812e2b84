"""What `auto` goes by: counts, costs, and what rounds were like."""
