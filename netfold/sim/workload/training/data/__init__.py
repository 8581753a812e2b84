"""Real data: data sets in packages, and what is read from them."""
